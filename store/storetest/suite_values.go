package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
	"github.com/threadsvc/threadsvc/store"
)

// equal compares whole values, times included: they are of one clock and in UTC.
func equal[T any](t testing.TB, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// awkward are JSON texts that a database's own JSON types would change or refuse.
var awkward = []string{
	`"\u0000"`, `"\ud800"`, `{"\u0000":1,"\udfff":2}`, `1e400`, `1e131000`, `1.10`, `9007199254740993`,
	`123456789012345678901234567890`, `{"b":1,"a":2,"b":3}`, ` [ 1 , 2 ] `, `"\\u0000"`, `"é\u00e9"`, `null`, `false`, `""`,
}

func testValuesKept(t *testing.T, s store.Store) {
	w := newWriter("acme", "t\u00e9 👨‍👩‍👧 '\"\\")
	must(t, s, w.create())
	must(t, s, w.start("r\u00e9'", awkward[0]))
	for i, text := range awkward {
		c := w.commit(text)
		c.Fold = &agui.Changes{
			Version:  c.Version,
			Upserts:  []agui.StoredMessage{message(int64(i), text)},
			State:    agui.StateChange{Replaced: agui.Value(text)},
			Tracking: []byte("\x00\xff" + text),
		}
		c.Updated = []store.Run{{RunID: w.active, Status: store.RunActive, Result: agui.Value(text)}}
		c.Warnings = []store.Warning{{Version: c.Version, Warning: agui.Warning{
			Code: agui.PropertyUnknown, Path: "/\x00\xff", Detail: "\x00", Removed: agui.Value(text),
		}}}
		must(t, s, c)
		loaded := load(t, s, w.key)
		if got := string(loaded.Fold.State); got != text {
			t.Errorf("state %q came back as %q", text, got)
		}
		if got := string(loaded.LastRun.Result); got != text {
			t.Errorf("result %q came back as %q", text, got)
		}
		equal(t, loaded.Fold.Messages[i], message(int64(i), text))
		equal(t, loaded.Fold.Tracking, []byte("\x00\xff"+text))
	}
	if got := payloads(t, logOf(t, s, w.key, 2, 1<<20)); !slices.Equal(got, awkward) {
		t.Errorf("log %q came back as %q", awkward, got)
	}
	for i, warning := range ok[[]store.Warning](t)(s.Warnings(t.Context(), w.key, store.WarningPlace{}, 100)) {
		if warning.Path != "/\x00\xff" || warning.Detail != "\x00" || string(warning.Removed) != awkward[i] {
			t.Errorf("warning %d came back as %+v", i, warning)
		}
	}
}

// Values that compress well and values that do not, from empty to several megabytes.
func testLargeValues(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	random := rand.NewChaCha8([32]byte{})
	for _, size := range []int{0, 1, 100, 101, 4096, 100_000, 5 << 20} {
		noise := make([]byte, size)
		_, _ = random.Read(noise)
		for _, text := range []string{strings.Repeat("a", size), string(noise)} {
			c := w.commit(text)
			c.Fold = &agui.Changes{
				Version: c.Version, State: agui.StateChange{Replaced: agui.Value(text)}, Tracking: []byte(text),
				Upserts: []agui.StoredMessage{message(int64(size), text)}, Stored: 5 << 20,
			}
			must(t, s, c)
			fold := load(t, s, w.key).Fold
			body := fold.Messages[len(fold.Messages)-1].Body
			if string(fold.State) != text || string(fold.Tracking) != text || string(body) != text {
				t.Errorf("a value of %d bytes came back changed", size)
			}
			if got := payloads(t, logOf(t, s, w.key, w.version, 1)); len(got) != 1 || got[0] != text {
				t.Errorf("an entry of %d bytes came back changed", size)
			}
		}
	}
}

func testFold(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create(`{"messages":[]}`))
	c := w.commit(`1`)
	c.Fold = &agui.Changes{
		Version: c.Version, Tracking: []byte("one"),
		Upserts: []agui.StoredMessage{message(10, `"a"`), message(20, `"b"`), message(30, `"c"`)},
	}
	must(t, s, c)
	must(t, s, w.commit(`2`))
	loaded := load(t, s, w.key)
	if got := payloads(t, loaded.Tail); !slices.Equal(got, []string{`2`}) || loaded.Fold.Version != 2 {
		t.Errorf("the fold is at version %d with the tail %q", loaded.Fold.Version, got)
	}
	c = w.commit(`3`)
	c.Fold = &agui.Changes{
		Version: c.Version, Tracking: []byte("two"), Deletes: []int64{10, 30, 99}, Stored: 30,
		Upserts: []agui.StoredMessage{message(15, `"d"`), message(20, `"B"`)},
	}
	must(t, s, c)
	equal(t, load(t, s, w.key).Fold, agui.Fold{
		Version: 4, Tracking: []byte("two"), Messages: []agui.StoredMessage{message(15, `"d"`), message(20, `"B"`)},
	})
}

// The fold alone is that of a load, without the roles that are not wanted; one that lags is not read.
func testFolded(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	if _, err := s.Folded(t.Context(), w.key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a thread that is not there: %v", err)
	}
	must(t, s, w.create())
	equal(t, ok[*store.Folded](t)(s.Folded(t.Context(), w.key)).Fold.Messages, nil)
	activity := message(15, `"activity"`)
	activity.Role = agui.RoleActivity
	c := w.commit(`1`)
	c.Fold = &agui.Changes{
		Version: c.Version, Tracking: []byte("one"),
		Upserts: []agui.StoredMessage{message(10, `"a"`), activity, message(20, strings.Repeat("b", 1000))},
	}
	c.Fold.State.Replaced = agui.Value(`{"a":1}`)
	must(t, s, c)
	for i := range 3 {
		folded := ok[*store.Folded](t)(s.Folded(t.Context(), w.key))
		loaded := load(t, s, w.key)
		equal(t, folded, &store.Folded{Version: loaded.Head.Version, Hash: loaded.Head.Hash, Fold: loaded.Fold})
		without := ok[*store.Folded](t)(s.Folded(t.Context(), w.key, agui.RoleActivity))
		equal(t, without.Fold.Messages, []agui.StoredMessage{loaded.Fold.Messages[0], loaded.Fold.Messages[2]})
		c = w.commit(`2`)
		c.Fold = &agui.Changes{Version: c.Version}
		c.Fold.State.Patches = []agui.StatePatch{{Version: c.Version, Patch: agui.Value(fmt.Sprintf(`[{"op":"add","path":"/b","value":%d}]`, i))}}
		must(t, s, c)
	}
	at := w.version
	must(t, s, w.commit(`3`))
	lagging := ok[*store.Folded](t)(s.Folded(t.Context(), w.key))
	if lagging.Current() || lagging.Version != w.version || lagging.Fold.Version != at || lagging.Fold.Messages != nil {
		t.Errorf("a fold that lags is read as %+v", lagging)
	}
}

// State patches add up to the same text whenever they are folded into a new base.
func testStatePatches(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create())
	want := ok[*jsondoc.Doc](t)(jsondoc.Parse([]byte(`{}`), jsondoc.Limits{}))
	patch := func(text string) {
		c := w.commit(text)
		c.Fold = &agui.Changes{Version: c.Version}
		c.Fold.State.Patches = []agui.StatePatch{{Version: c.Version, Patch: agui.Value(text)}}
		must(t, s, c)
		parsed := ok[*jsondoc.Patch](t)(jsondoc.ParsePatch([]byte(text), jsondoc.Limits{}))
		if err := want.Apply(parsed); err != nil {
			t.Fatal(err)
		}
		if got := load(t, s, w.key).Fold.State; !bytes.Equal(got, want.AppendTo(nil)) {
			t.Fatalf("state is %.200s, want %.200s", got, want.AppendTo(nil))
		}
	}
	for i := range 40 {
		patch(fmt.Sprintf(`[{"op":"add","path":"/k%d","value":"%s"}]`, i%7, strings.Repeat("x", 10*i)))
	}
	c := w.commit(`replaced`)
	c.Fold = &agui.Changes{Version: c.Version, State: agui.StateChange{Replaced: agui.Value(` {"n" : 1.10} `)}}
	must(t, s, c)
	if got := string(load(t, s, w.key).Fold.State); got != ` {"n" : 1.10} ` {
		t.Fatalf("state is %q after its replacement", got)
	}
	want = ok[*jsondoc.Doc](t)(jsondoc.Parse([]byte(`{"n":1.10}`), jsondoc.Limits{}))
	patch(`[{"op":"add","path":"/m","value":1e400}]`)
	must(t, s, w.commit(`no fold`))
	patch(`[{"op":"remove","path":"/n"},{"op":"add","path":"","value":[]}]`)
	patch(`[{"op":"add","path":"/0","value":null}]`)
}

func testInput(t *testing.T, s store.Store) {
	w := newWriter("acme", "t")
	must(t, s, w.create(`{"created":1}`))
	must(t, s, w.start("r1", `{"started":1}`))
	fold := func(want string) {
		t.Helper()
		c := w.commit(`{}`)
		c.Fold = &agui.Changes{Version: c.Version}
		must(t, s, c)
		if got := string(load(t, s, w.key).Fold.Input); got != want {
			t.Errorf("input is %q, want %q", got, want)
		}
	}
	if got := load(t, s, w.key).Fold.Input; got != nil {
		t.Errorf("input %q although the tail has it", got)
	}
	fold(`{"started":1}`)
	must(t, s, w.finish(`{}`))
	fold("")

	seen := w.start("r2", `{"passing":1}`)
	seen.Opened[0].InputHash = [32]byte{}
	must(t, s, seen)
	fold("")
	must(t, s, w.finish(`{}`))

	// The input shares its segment with the events that followed.
	c := w.start("r3", `{"started":3}`)
	c.Segments[0].Entries = append(c.Segments[0].Entries, w.segment(agui.KindEvent, `{}`).Entries...)
	c.Segments[0].LastVersion, c.Segments[0].NextOffset = w.version, w.next
	must(t, s, w.head(c))
	fold(`{"started":3}`)
}

package agui_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
)

func TestEntriesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) agui.Entry {
			e := agui.Entry{
				Kind:    agui.Kind(rapid.IntRange(1, 3).Draw(t, "kind")),
				Flags:   agui.Flags(rapid.IntRange(0, 7).Draw(t, "flags")),
				Offset:  rapid.Uint64().Draw(t, "offset"),
				Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			}
			if e.Flags&agui.FlagDigest != 0 {
				e.Digest = agui.DigestOf(e.Payload)
			}
			return e
		}), 0, 5).Draw(t, "entries")
		var stored []byte
		for i := range entries {
			stored = entries[i].Append(stored)
		}
		read, err := agui.DecodeEntries(stored)
		if err != nil || len(read) != len(entries) {
			t.Fatalf("%d entries became %d: %v", len(entries), len(read), err)
		}
		var again []byte
		for i := range read {
			again = read[i].Append(again)
		}
		if !bytes.Equal(again, stored) {
			t.Fatalf("%x became %x", stored, again)
		}
		if len(stored) > 0 { // whatever is cut off, the whole entries before it are read
			cut := rapid.IntRange(0, len(stored)-1).Draw(t, "cut")
			some, err := agui.DecodeEntries(stored[:cut])
			if err != nil && !errors.Is(err, agui.ErrEntryCorrupt) || err == nil && len(some) == len(entries) {
				t.Fatalf("%d of %d bytes: %d entries, %v", cut, len(stored), len(some), err)
			}
		}
	})
}

// TestEntriesKnowTheirEvent: an entry tells the event that caused it from any other, also when its text is not the
// payload, as for chunks and what was stripped or dropped.
func TestEntriesKnowTheirEvent(t *testing.T) {
	t.Parallel()
	th := started(t)
	for _, event := range []string{
		`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"a"}`,
		`{"type":"TEXT_MESSAGE_CHUNK"}`,
		`{"type":"CUSTOM","name":"n","value":1}`,
		`{"type":"CUSTOM","name":"n","value":1,"extra":1}`,
		`{"type":"UNKNOWN"}`,
		`{"type":"THINKING_START"}`,
	} {
		a, v := th.Apply(7, []byte(event))
		if v != nil {
			t.Fatal(v)
		}
		entries, err := agui.DecodeEntries(a.Stored)
		if err != nil || len(entries) != a.Entries || a.Entries == 0 {
			t.Fatalf("%d entries of %d, %v", len(entries), a.Entries, err)
		}
		for _, e := range entries {
			if e.Offset != 7 || !e.Caused([]byte(event)) || e.Caused([]byte(event+" ")) {
				t.Errorf("%s: entry %d %d %s", event, e.Kind, e.Offset, e.Payload)
			}
		}
	}
}

// TestHashDependsOnEveryEntry: the chain is the same however the log is cut, and another for any other log.
func TestHashDependsOnEveryEntry(t *testing.T) {
	t.Parallel()
	log := logOf(t, runStarted, `{"type":"CUSTOM","name":"n","value":1}`, runFinished)
	other := logOf(t, runStarted, `{"type":"CUSTOM","name":"n","value":2}`, runFinished)
	whole := replay(t, "t", log, agui.DefaultLimits())
	parts := agui.NewThread("t", agui.DefaultLimits())
	first, err := agui.DecodeEntries(log)
	if err != nil {
		t.Fatal(err)
	}
	for i := range first {
		if err := parts.Replay(&first[i], first[i].Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if whole.Hash() != parts.Hash() || whole.Hash() == replay(t, "t", other, agui.DefaultLimits()).Hash() {
		t.Error("the hash does not tell the logs apart, or depends on how it is read")
	}
}

// TestUnreadableEntries: what cannot be read is reported and counted, and the rest is read.
func TestUnreadableEntries(t *testing.T) {
	t.Parallel()
	good := agui.Entry{Kind: agui.KindEvent, Payload: []byte(runStarted)}
	for name, bad := range map[string]agui.Entry{
		"kind":        {Kind: 9},
		"json":        {Kind: agui.KindEvent, Payload: []byte(`{`)},
		"event type":  {Kind: agui.KindEvent, Payload: []byte(`{"type":"LATER"}`)},
		"sequence":    {Kind: agui.KindEvent, Payload: []byte(`{"type":"TEXT_MESSAGE_END","messageId":"m"}`)},
		"mark":        {Kind: agui.KindMark, Payload: []byte(`[]`)},
		"input":       {Kind: agui.KindInput, Payload: []byte(`[`)},
		"no messages": {Kind: agui.KindInput, Payload: []byte(``)},
	} {
		log := bad.Append(good.Append(nil))
		state := agui.Entry{Kind: agui.KindEvent, Payload: []byte(`{"type":"STATE_SNAPSHOT","snapshot":1}`)}
		th := agui.NewThread("t", agui.DefaultLimits())
		errs := th.ReplayAll(state.Append(log))
		if len(errs) != 1 || th.Version() != 3 || string(th.State(nil)) != "1" {
			t.Errorf("%s: %v, version %d, state %s", name, errs, th.Version(), th.State(nil))
		}
	}
	th := agui.NewThread("t", agui.DefaultLimits())
	log := good.Append(nil)
	if errs := th.ReplayAll(log[:len(log)-1]); len(errs) != 1 || !errors.Is(errs[0], agui.ErrEntryCorrupt) {
		t.Errorf("%v", errs)
	}
}

// TestSkipAndSeal: a thread whose log has holes still ends at its head.
func TestSkipAndSeal(t *testing.T) {
	t.Parallel()
	th := started(t)
	th.Skip(10)
	mustApply(t, th, `{"type":"CUSTOM","name":"n","value":1}`)
	if th.Version() != 11 {
		t.Errorf("version %d", th.Version())
	}
	th.Seal(20, [32]byte{1})
	if th.Version() != 20 || th.Hash() != [32]byte{1} {
		t.Errorf("version %d, hash %x", th.Version(), th.Hash())
	}
}

// TestMarksSayWhy: how a run was closed is in the log and in what is returned.
func TestMarksSayWhy(t *testing.T) {
	t.Parallel()
	th := started(t)
	_, v := th.Apply(3, []byte(`{"type":"TEXT_MESSAGE_END","messageId":"m"}`))
	a := th.Fail(3, v)
	entries, err := agui.DecodeEntries(a.Stored)
	if err != nil || len(entries) != 1 || entries[0].Kind != agui.KindMark || entries[0].Offset != 3 {
		t.Fatalf("entries %+v, %v", entries, err)
	}
	for _, part := range []string{`"type":"RUN_FAILED"`, `"runId":"r1"`, `"code":"SEQUENCE_NOT_OPEN"`, `"path":"/messageId"`} {
		if !strings.Contains(string(entries[0].Payload), part) {
			t.Errorf("mark %s has no %s", entries[0].Payload, part)
		}
	}
	if a.Ended == nil || a.Ended.Ending != agui.EndFailed || !strings.Contains(string(a.Ended.Error), `"code":"SEQUENCE_NOT_OPEN"`) {
		t.Errorf("ended %+v", a.Ended)
	}
	refused(t, th, runStarted, agui.SequenceRunOver)
	if th.Fail(4, v).Entries != 0 {
		t.Error("a closed run was closed again")
	}
}

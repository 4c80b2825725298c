package agui_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/aguitest"
)

// A thread restored from the stored form of its fold is the thread, at every version, and goes on as it does.
func TestFoldFormRestoresTheThread(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newTrio(t, agui.DefaultLimits())
		for _, step := range aguitest.Stream(t, aguitest.Options{}) {
			m.step(step)
			live := m.threads[0]
			restored := reform(t, live, m.lim)
			if diff := differ(live, restored); diff != "" {
				t.Fatalf("restored from the stored form: %s", diff)
			}
			if rapid.IntRange(0, 9).Draw(t, "go on from it") == 0 {
				m.threads[1] = restored
			}
		}
	})
}

// reform takes a thread through the stored form of its fold, which must be the same for the result, and gives it limits,
// which are no part of the form.
func reform(t failer, th *agui.Thread, lim agui.Limits) *agui.Thread {
	t.Helper()
	fold := th.Fold()
	stored := fold.Append(nil)
	if fold.Size() < len(stored)/2 {
		t.Fatalf("a fold of %d bytes claims %d", len(stored), fold.Size())
	}
	read, err := agui.DecodeFold(stored)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	restored, err := agui.Restore("t", read, th.Hash(), lim)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	again := restored.Fold()
	if text := again.Append(nil); !bytes.Equal(text, stored) {
		t.Fatalf("the stored forms differ:\n%q\n%q", stored, text)
	}
	return restored
}

func TestFoldFormOfANewThread(t *testing.T) {
	t.Parallel()
	th := agui.NewThread("t", agui.DefaultLimits())
	if diff := differ(th, reform(t, th, agui.DefaultLimits())); diff != "" {
		t.Fatal(diff)
	}
	if f := th.Fold(); f.State != nil || f.Version != 0 {
		t.Errorf("the fold of nothing: %+v", f)
	}
}

// Whatever was cut or changed is either refused or a fold; nothing panics, and no length is believed.
func TestFoldFormCorrupt(t *testing.T) {
	t.Parallel()
	th := started(t)
	mustApply(t, th, `{"type":"STATE_SNAPSHOT","snapshot":{"a":[1,2]}}`,
		`{"type":"TEXT_MESSAGE_START","messageId":"m"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x"}`)
	fold := th.Fold()
	stored := fold.Append(nil)
	for n := range stored {
		if _, err := agui.DecodeFold(stored[:n]); !errors.Is(err, agui.ErrFoldCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for _, wrong := range [][]byte{
		nil, {0}, {3, 0}, append(bytes.Clone(stored), 0), {1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f},
		{2, 2, 'a', 1, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, ','}, {2, 0xff, 0xff, 0xff, 0xff, 0x7f},
		{2, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, {2, 2, 'a', 1, 0, 2, 0, 0, 0, 0, 0, 'x', ';'},
		{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		if f, err := agui.DecodeFold(wrong); !errors.Is(err, agui.ErrFoldCorrupt) {
			t.Errorf("%v: %+v and %v", wrong, f, err)
		}
	}
	for i := range stored {
		for bit := range 8 {
			flipped := bytes.Clone(stored)
			flipped[i] ^= 1 << bit
			if f, err := agui.DecodeFold(flipped); err == nil {
				if again := f.Append(nil); bytes.Equal(again, stored) {
					t.Errorf("byte %d, bit %d: the change is lost", i, bit)
				}
			}
		}
	}
}

// What was written in the first form is read, and written anew in the present one.
func TestFirstFoldForm(t *testing.T) {
	t.Parallel()
	first := "\x01\x07" + "\x03{}" + "\x02" + "\x02\x02a\x05user\x03{}" + "\x04\x02b\x01\x00" + "\x00" + "\x02t"
	want := agui.Fold{Version: 7, State: agui.Value("{}"), Tracking: []byte("t"), Messages: []agui.StoredMessage{
		{Position: 1, ID: "a", Role: "user", Body: agui.Value("{}")}, {Position: 3, ID: "b"},
	}}
	got, err := agui.DecodeFold([]byte(first))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v", got, err)
	}
	again, err := agui.DecodeFold(got.Append(nil))
	if err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("written anew: %+v, %v", again, err)
	}
	for n := range first {
		if _, err := agui.DecodeFold([]byte(first[:n])); !errors.Is(err, agui.ErrFoldCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

package agui_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
)

// failer is what the checks need of a test: *testing.T and *rapid.T have it.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// foldStore keeps a fold as a database does: message rows by position, a state under patches.
type foldStore struct {
	version  uint64
	hash     [32]byte
	rows     map[int64]agui.StoredMessage
	state    agui.Value
	tracking []byte
	input    agui.Value
}

// write brings the stored fold up to date with what has changed, in an order that must not matter.
func (s *foldStore) write(t failer, th *agui.Thread) {
	t.Helper()
	c := th.Changes()
	if s.rows == nil {
		s.rows = map[int64]agui.StoredMessage{}
	}
	for i, m := range c.Upserts {
		if i > 0 && c.Upserts[i-1].Position >= m.Position {
			t.Fatalf("upserts are not in order: %d after %d", m.Position, c.Upserts[i-1].Position)
		}
		s.rows[m.Position] = m
	}
	for _, position := range c.Deletes {
		if _, found := s.rows[position]; !found {
			t.Fatalf("position %d is deleted and was never stored", position)
		}
		delete(s.rows, position)
	}
	s.writeState(t, c.State)
	s.version, s.hash, s.tracking, s.input = c.Version, th.Hash(), c.Tracking, th.Input()
	th.Settle()
}

func (s *foldStore) writeState(t failer, change agui.StateChange) {
	if change.Replaced != nil {
		s.state = change.Replaced
	}
	if len(change.Patches) == 0 {
		return
	}
	base := s.state
	if base == nil {
		base = agui.Value("{}")
	}
	unlimited := jsondoc.Limits{Depth: math.MaxInt, Ops: math.MaxInt, Size: math.MaxInt, Work: math.MaxInt}
	doc, err := jsondoc.Parse(base, unlimited)
	for _, p := range change.Patches {
		if err == nil {
			var patch *jsondoc.Patch
			if patch, err = jsondoc.ParsePatch(p.Patch, unlimited); err == nil {
				err = doc.Apply(patch)
			}
		}
	}
	if err != nil {
		t.Fatalf("stored patches do not apply: %v", err)
	}
	s.state = doc.AppendTo(nil)
}

// restore makes the thread from the stored fold.
func (s *foldStore) restore(t failer, id string, lim agui.Limits) *agui.Thread {
	t.Helper()
	f := agui.Fold{Version: s.version, State: s.state, Tracking: s.tracking, Input: s.input}
	for _, m := range s.rows {
		f.Messages = append(f.Messages, m)
	}
	slices.SortFunc(f.Messages, func(a, b agui.StoredMessage) int { return int(a.Position - b.Position) })
	th, err := agui.Restore(id, f, s.hash, lim)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	return th
}

// replay makes the thread from the log.
func replay(t failer, id string, log []byte, lim agui.Limits) *agui.Thread {
	t.Helper()
	th := agui.NewThread(id, lim)
	if errs := th.ReplayAll(log); len(errs) > 0 {
		t.Fatalf("replay: %v", errs)
	}
	return th
}

// differ says how two threads that should be the same are not; empty if they are.
func differ(want, got *agui.Thread) string {
	if want.Version() != got.Version() || want.Hash() != got.Hash() {
		return fmt.Sprintf("version %d with hash %x, and %d with %x", want.Version(), want.Hash(), got.Version(), got.Hash())
	}
	pairs := []struct {
		what      string
		want, got []byte
	}{
		{"state", want.State(nil), got.State(nil)},
		{"messages", rows(want), rows(got)},
		{"run input", want.RunInput(false).Text, got.RunInput(false).Text},
		{"run input in used memory", want.RunInput(false).Text, got.AppendRunInput([]byte("used before")[:0], false).Text},
		{"repaired run input", want.RunInput(true).Text, got.RunInput(true).Text},
		{"tracking", want.Changes().Tracking, got.Changes().Tracking},
		{"input", want.Input(), got.Input()},
		{"pending calls", fmt.Append(nil, want.PendingToolCalls()), fmt.Append(nil, got.PendingToolCalls())},
		{"size", fmt.Append(nil, want.Size()), fmt.Append(nil, got.Size())},
	}
	for _, p := range pairs {
		if !bytes.Equal(p.want, p.got) {
			return fmt.Sprintf("%s\n%s\nand\n%s", p.what, p.want, p.got)
		}
	}
	return ""
}

func rows(th *agui.Thread) []byte {
	var all []byte
	for _, m := range th.Messages() {
		all = append(m.AppendTo(fmt.Appendf(all, "%d %s %s ", m.Position, m.ID, m.Role)), '\n')
	}
	return all
}

// sound says what is wrong with a thread's book-keeping; empty if nothing is.
func sound(th *agui.Thread) string {
	size, last, ids := len(th.State(nil)), int64(0), map[string]bool{}
	if size != th.StateSize() {
		return fmt.Sprintf("state size %d, want %d", th.StateSize(), size)
	}
	for _, m := range th.Messages() {
		body := m.AppendTo(nil)
		if len(body) != m.Size() {
			return fmt.Sprintf("message %s has size %d, want %d", m.ID, m.Size(), len(body))
		}
		if m.Position <= last || ids[m.ID] {
			return fmt.Sprintf("message %s at %d comes after %d, or twice", m.ID, m.Position, last)
		}
		size, last, ids[m.ID] = size+len(body), m.Position, true
	}
	if size != th.Size() {
		return fmt.Sprintf("size %d, want %d", th.Size(), size)
	}
	return ""
}

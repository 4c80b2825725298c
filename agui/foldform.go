package agui

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// foldForm is the version of the stored form that Append writes; DecodeFold reads firstForm, too.
const (
	foldForm  = 2
	firstForm = 1
)

// bodyEnd follows each message, as it does in most texts of JSON that list them: where forms are kept by content, they share
// the messages with snapshots of the log.
const bodyEnd = ','

// ErrFoldCorrupt is returned for a text that is not the stored form of a fold.
var ErrFoldCorrupt = errors.New("agui: corrupt fold")

// Fold returns the thread as it is now. Its texts are the caller's, except Input, which must not be changed. It is the same
// whether the thread was live, restored or replayed: a state of {} is absent, since whether anything has set it is not kept.
func (t *Thread) Fold() Fold {
	f := Fold{Version: t.version, Tracking: t.track.encode(), Input: t.input}
	if state := t.State(nil); string(state) != emptyState {
		f.State = state
	}
	for _, m := range t.msgs.order {
		body := m.AppendTo(make([]byte, 0, m.Size()))
		f.Messages = append(f.Messages, StoredMessage{Position: m.Position, ID: m.ID, Role: m.Role, Body: body})
	}
	return f
}

// Size is about the length of the fold's stored form.
func (f *Fold) Size() int {
	size := len(f.State) + len(f.Input) + len(f.Tracking) + 64
	for i := range f.Messages {
		size += len(f.Messages[i].Body) + len(f.Messages[i].ID) + len(f.Messages[i].Role) + 16
	}
	return size
}

// Append appends the fold's one self-contained stored form, which is the same for equal folds: the number of the form,
// of each message its id, its role, the gap between its position and the one before, and its size plus one; a 0; the version,
// the tracking, the input, the state, and the messages. Numbers are varints; a text is its length plus one, 0 standing for an
// absent one, and its bytes. What is most likely to change from fold to fold stands together.
func (f *Fold) Append(dst []byte) []byte {
	dst = append(dst, foldForm)
	before := int64(0)
	for i := range f.Messages {
		m := &f.Messages[i]
		dst = appendText(dst, append([]byte{}, m.ID...))
		dst = appendText(dst, append([]byte{}, m.Role...))
		dst = binary.AppendVarint(dst, m.Position-before)
		dst = appendSize(dst, m.Body)
		before = m.Position
	}
	dst = binary.AppendUvarint(append(dst, 0), f.Version)
	dst = appendText(dst, f.Tracking)
	dst = appendText(dst, f.Input)
	dst = appendText(dst, f.State)
	for i := range f.Messages {
		dst = append(dst, f.Messages[i].Body...)
		dst = append(dst, bodyEnd)
	}
	return dst
}

func appendText(dst, text []byte) []byte {
	return append(appendSize(dst, text), text...)
}

// appendSize appends what a text begins with.
func appendSize(dst, text []byte) []byte {
	if text == nil {
		return append(dst, 0)
	}
	return binary.AppendUvarint(dst, uint64(len(text))+1)
}

// DecodeFold reads the stored form of a fold, which it aliases. The error is ErrFoldCorrupt.
func DecodeFold(stored []byte) (Fold, error) {
	r := foldReader{rest: stored}
	var f Fold
	switch form := r.byte(); form {
	case foldForm:
		f = r.fold()
	case firstForm:
		f = r.firstFold()
	default:
		return Fold{}, fmt.Errorf("%w: form %d is unknown", ErrFoldCorrupt, form)
	}
	if r.bad || len(r.rest) > 0 {
		return Fold{}, fmt.Errorf("%w at byte %d of %d", ErrFoldCorrupt, len(stored)-len(r.rest), len(stored))
	}
	return f, nil
}

// fold reads what Append writes after the number of the form.
func (r *foldReader) fold() (f Fold) {
	var sizes []uint64
	position := int64(0)
	for id := r.text(); id != nil; id = r.text() {
		role := Role(r.text())
		position += r.gap()
		f.Messages = append(f.Messages, StoredMessage{Position: position, ID: string(id), Role: role})
		sizes = append(sizes, r.number())
	}
	f.Version = r.number()
	f.Tracking, f.Input, f.State = r.text(), r.text(), r.text()
	for i := range f.Messages {
		f.Messages[i].Body = r.sized(sizes[i])
		r.bad = r.bad || r.byte() != bodyEnd
	}
	return f
}

// firstFold reads the first form: the version, the state, the number of messages, of each the gap, the id, the role and the
// message; the input and the tracking.
func (r *foldReader) firstFold() Fold {
	f := Fold{Version: r.number(), State: r.text()}
	position := int64(0)
	for n := r.number(); n > 0 && !r.bad; n-- {
		position += r.gap()
		f.Messages = append(f.Messages, StoredMessage{Position: position, ID: string(r.text()), Role: Role(r.text()), Body: r.text()})
	}
	f.Input, f.Tracking = r.text(), r.text()
	return f
}

// foldReader reads a stored form from its start. Once something is wrong it reads zeros.
type foldReader struct {
	rest []byte
	bad  bool
}

func (r *foldReader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *foldReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	r.skip(size)
	return n
}

func (r *foldReader) gap() int64 {
	n, size := binary.Varint(r.rest)
	r.skip(size)
	return n
}

func (r *foldReader) skip(size int) {
	if size <= 0 || r.bad {
		r.bad = true
		return
	}
	r.rest = r.rest[size:]
}

func (r *foldReader) text() []byte { return r.sized(r.number()) }

// sized reads a text of a size plus one.
func (r *foldReader) sized(size uint64) []byte {
	if size == 0 || r.bad {
		return nil
	}
	if size--; size > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	text := r.rest[:size:size]
	r.rest = r.rest[size:]
	return text
}

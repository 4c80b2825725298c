package agui

import (
	"cmp"
	"slices"
)

// positionGap is left between the positions of neighbouring messages, so that tool results can be seated between.
const positionGap = 1 << 20

// seatGap is left before a message that is seated between two others. It is small because the next one, the result of
// another call of the same message, is seated after it.
const seatGap = 1 << 8

// messages is the ordered list of a thread's messages, with what is needed to find them and to write what has changed
// since the stored fold. Every change of a message goes through grew or the methods below.
type messages struct {
	order []*Message
	byID  map[string]*Message
	calls map[string]callPlace // by tool call id, if indexed
	size  int                  // of all the messages' text

	indexed bool // calls is complete; otherwise it is empty, until somebody asks for one

	dirty   map[*Message]struct{}
	deleted []int64 // stored positions that are gone
	stored  int64   // the highest position in the stored fold
}

// callPlace is where a tool call is held.
type callPlace struct {
	message *Message
	call    *toolCall
}

func newMessages() messages {
	return messages{byID: map[string]*Message{}, calls: map[string]callPlace{}, dirty: map[*Message]struct{}{}, indexed: true}
}

// reserve makes room for n messages in a list that is empty.
func (l *messages) reserve(n int) {
	l.order, l.byID = make([]*Message, 0, n), make(map[string]*Message, n)
}

// grew notes that a message has changed and by how much its size did.
func (l *messages) grew(m *Message, by int) {
	l.size += by
	l.dirty[m] = struct{}{}
}

// sizeOutside is the size of the messages that stand outside a snapshot that carries messages of the given roles.
func (l *messages) sizeOutside(carried set[Role]) int {
	size := 0
	for _, m := range l.order {
		if m.outside(carried) {
			size += m.Size()
		}
	}
	return size
}

// index returns the place of a message in the order.
func (l *messages) index(m *Message) int {
	i, _ := slices.BinarySearchFunc(l.order, m.Position, func(at *Message, position int64) int {
		return cmp.Compare(at.Position, position)
	})
	return i
}

// append adds a message at the end.
func (l *messages) append(m *Message) { l.insert(len(l.order), m) }

// insert adds a message so that it is the i-th. Its id must not be held.
func (l *messages) insert(i int, m *Message) {
	m.Position = l.positionAt(i)
	l.order = slices.Insert(l.order, i, m)
	l.hold(m)
	l.grew(m, m.Size())
}

// positionAt returns a free position before the i-th message, making room if there is none.
func (l *messages) positionAt(i int) int64 {
	var before int64
	if i > 0 {
		before = l.order[i-1].Position
	}
	if i == len(l.order) {
		return before + positionGap
	}
	if room := l.order[i].Position - before; room > 1 {
		return before + min(room/2, seatGap)
	}
	l.spread()
	return l.positionAt(i)
}

// spread gives all messages new positions with full gaps.
func (l *messages) spread() {
	for i, m := range l.order {
		if m.stored {
			l.deleted = append(l.deleted, m.Position)
			m.stored = false
		}
		m.Position = int64(i+1) * positionGap
		l.dirty[m] = struct{}{}
	}
}

// settle notes that the stored fold is up to date.
func (l *messages) settle() {
	for m := range l.dirty {
		m.stored = true
	}
	clear(l.dirty)
	l.deleted, l.stored = nil, 0
	if n := len(l.order); n > 0 {
		l.stored = l.order[n-1].Position
	}
}

// restore adds a message of the stored fold at the end. Its calls stay text until one is asked for: most loads ask for none.
func (l *messages) restore(m *Message) {
	l.order = append(l.order, m)
	l.byID[m.ID] = m
	l.size += m.Size()
	l.indexed = l.indexed && m.rawCalls == nil
}

// hold makes a message and its calls findable. The first holder of a call keeps it. It may change the message's size.
func (l *messages) hold(m *Message) {
	l.byID[m.ID] = m
	for _, call := range m.calls() {
		l.holdCall(m, call)
	}
}

// call finds the tool call of that id.
func (l *messages) call(id string) (place callPlace, held bool) {
	if !l.indexed {
		l.indexCalls()
	}
	place, held = l.calls[id]
	return place, held
}

func (l *messages) holdCall(m *Message, call *toolCall) {
	if _, held := l.calls[call.id]; l.indexed && !held {
		l.calls[call.id] = callPlace{message: m, call: call}
	}
}

// forgetCalls leaves open which message holds a call, as it is after one with calls was dropped, or came in before others: several
// messages may have the same call.
func (l *messages) forgetCalls() {
	clear(l.calls)
	l.indexed = false
}

// indexCalls finds out which message holds a call: the first in order. It opens all that have some, which changes the size of
// one whose text was not its own form.
func (l *messages) indexCalls() {
	clear(l.calls)
	l.indexed = true
	for _, m := range l.order {
		if m.rawCalls != nil {
			_, grown := m.open()
			l.size += grown
		}
		for _, call := range m.calls() {
			l.holdCall(m, call)
		}
	}
}

// release is the reverse of hold.
func (l *messages) release(m *Message) {
	delete(l.byID, m.ID)
	delete(l.dirty, m)
	if m.hasCalls() {
		l.forgetCalls()
	}
}

// replace puts m in the place of old, which has the same id.
func (l *messages) replace(old, m *Message) {
	i := l.index(old)
	l.size -= old.Size()
	l.release(old)
	m.Position, m.stored = old.Position, old.stored
	l.order[i] = m
	if m.hasCalls() { // which messages behind it may hold
		l.forgetCalls()
	}
	l.hold(m)
	l.grew(m, m.Size())
}

// keepOnly drops the messages that keep does not want.
func (l *messages) keepOnly(keep func(*Message) bool) {
	l.order = slices.DeleteFunc(l.order, func(m *Message) bool {
		if keep(m) {
			return false
		}
		l.size -= m.Size()
		l.release(m)
		if m.stored {
			l.deleted = append(l.deleted, m.Position)
		}
		return true
	})
}

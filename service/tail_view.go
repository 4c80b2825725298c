package service

// view is what there is for a follower at a version: chunks in memory, something in the store, something that it is to
// bring from there for all, or nothing until changed is closed.
type view struct {
	chunks  []*chunk
	stored  bool
	fill    bool
	gone    bool
	known   uint64
	changed <-chan struct{}
}

// maxChunks bounds the chunks that a follower takes at once, and with them the memory that one who is slow holds on to.
const maxChunks = 16

// look finds what there is from a version on.
func (h *tails) look(t *tail, next uint64) view {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := view{gone: t.gone, known: t.known, changed: t.changed}
	switch {
	case t.gone || next > t.known:
	case next > t.end:
		v.fill = !t.filling
	default:
		v.chunks = t.from(next)
		v.stored = len(v.chunks) == 0
	}
	return v
}

// from returns chunks in memory from the one that has a version on, none if that is older. mu must be held.
func (t *tail) from(version uint64) []*chunk {
	if len(t.recent) == 0 || version < t.recent[0].first {
		return nil
	}
	at := len(t.recent) - 1
	for t.recent[at].first > version {
		at--
	}
	return append([]*chunk(nil), t.recent[at:min(len(t.recent), at+maxChunks)]...)
}

package content

// Names gathers the names of the chunks that references need, those of the lists included.
type Names struct {
	held  map[Hash]struct{}
	lists map[list]struct{} // that were read
}

// list is a chunk as a list of so many levels above the text.
type list struct {
	hash  Hash
	depth int
}

// NewNames returns none.
func NewNames() *Names {
	return &Names{held: map[Hash]struct{}{}, lists: map[list]struct{}{}}
}

// Has reports whether a chunk is needed.
func (n *Names) Has(hash Hash) bool {
	_, ok := n.held[hash]
	return ok
}

// Add adds what a reference needs. fetch returns the chunks of the given names; it is asked for lists only, and once for each.
func (n *Names) Add(ref []byte, fetch func([]Hash) (map[Hash][]byte, error)) error {
	depth, _, level, err := readRef(ref)
	for ; err == nil; depth-- {
		for _, hash := range level {
			n.held[hash] = struct{}{}
		}
		if depth == 0 {
			return nil
		}
		level, err = n.open(level, depth, fetch)
	}
	return err
}

// open returns the names in lists that were not read before.
func (n *Names) open(level []Hash, depth int, fetch func([]Hash) (map[Hash][]byte, error)) ([]Hash, error) {
	var unread []Hash
	for _, hash := range level {
		if _, ok := n.lists[list{hash, depth}]; !ok {
			n.lists[list{hash, depth}] = struct{}{}
			unread = append(unread, hash)
		}
	}
	if len(unread) == 0 {
		return nil, nil
	}
	text, err := join(unread, fetch, len(unread)*longestList*HashSize)
	if err != nil {
		return nil, err
	}
	return hashes(text)
}

package agui

import (
	"cmp"
	"encoding/json"
	"slices"
)

// lane is the item that one owner's chunks are assembling.
type lane struct {
	Owner  string   `json:"owner,omitempty"`
	Kind   itemKind `json:"kind"`
	ID     string   `json:"id"`
	Role   string   `json:"role,omitempty"`
	Name   Value    `json:"name,omitempty"` // of the message's author or of the tool
	Parent string   `json:"parent,omitempty"`

	opened uint64 // counts the lanes opened before
}

// lanes are the open ones, at most one per owner. The zero value has none. Its JSON form lists them in the order they were
// opened.
type lanes struct {
	opened  uint64
	byOwner map[string]*lane
	byItem  map[item]*lane
	owners  map[itemKind]set[string] // by what their lanes assemble
}

// of returns an owner's lane, nil if it has none.
func (l *lanes) of(owner string) *lane { return l.byOwner[owner] }

// holding returns the lane that assembles an item, nil if none does.
func (l *lanes) holding(kind itemKind, id string) *lane { return l.byItem[itemOf(kind, id)] }

// ofKind returns the owners whose lanes assemble items of a kind.
func (l *lanes) ofKind(kind itemKind) set[string] { return l.owners[kind] }

// open adds a lane; its owner must have none.
func (l *lanes) open(opened lane) {
	if l.byOwner == nil {
		l.byOwner, l.byItem, l.owners = map[string]*lane{}, map[item]*lane{}, map[itemKind]set[string]{}
	}
	opened.opened = l.opened
	l.opened++
	opened.Name = slices.Clone(opened.Name) // it would keep the event alive
	l.byOwner[opened.Owner], l.byItem[itemOf(opened.Kind, opened.ID)] = &opened, &opened
	if l.owners[opened.Kind] == nil {
		l.owners[opened.Kind] = set[string]{}
	}
	l.owners[opened.Kind].add(opened.Owner)
}

// close removes an owner's lane.
func (l *lanes) close(owner string) {
	if closed := l.byOwner[owner]; closed != nil {
		delete(l.byOwner, owner)
		delete(l.byItem, itemOf(closed.Kind, closed.ID))
		delete(l.owners[closed.Kind], owner)
	}
}

// inOrder lists the lanes in the order they were opened.
func (l *lanes) inOrder() []*lane {
	all := make([]*lane, 0, len(l.byOwner))
	for _, open := range l.byOwner {
		all = append(all, open)
	}
	slices.SortFunc(all, func(a, b *lane) int { return cmp.Compare(a.opened, b.opened) })
	return all
}

// IsZero reports whether no lane is open.
func (l lanes) IsZero() bool { return len(l.byOwner) == 0 }

// MarshalJSON implements json.Marshaler.
func (l lanes) MarshalJSON() ([]byte, error) { return json.Marshal(l.inOrder()) }

// UnmarshalJSON implements json.Unmarshaler.
func (l *lanes) UnmarshalJSON(text []byte) error {
	var list []lane
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*l = lanes{}
	for _, open := range list {
		l.open(open)
	}
	return nil
}

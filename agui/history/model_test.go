package history_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"
)

// modelNode is a JSON value of the model, which knows where it was before the last step: what has happened to a value
// is found by identity here, and by its path in the package.
type modelNode struct {
	scalar string // empty for containers
	object bool
	keys   []string
	kids   []*modelNode
}

func (n *modelNode) text() string {
	if n.scalar != "" {
		return n.scalar
	}
	var parts []string
	for i, kid := range n.kids {
		if n.object {
			parts = append(parts, `"`+n.keys[i]+`":`+kid.text())
		} else {
			parts = append(parts, kid.text())
		}
	}
	if n.object {
		return "{" + strings.Join(parts, ",") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// child is the place of a token's value among the kids, or -1.
func (n *modelNode) child(token string) int {
	if n.object {
		return slices.Index(n.keys, token)
	}
	if i, err := strconv.Atoi(token); err == nil && i < len(n.kids) && n.scalar == "" {
		return i
	}
	return -1
}

func tokensOf(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path[1:], "/")
}

// find is the node at a path, nil if there is none.
func (n *modelNode) find(path string) *modelNode {
	for _, token := range tokensOf(path) {
		i := n.child(token)
		if i < 0 {
			return nil
		}
		n = n.kids[i]
	}
	return n
}

// beyond reports whether a path leads to an element that an array does not have.
func (n *modelNode) beyond(path string) bool {
	for _, token := range tokensOf(path) {
		i := n.child(token)
		if i < 0 {
			return !n.object && n.scalar == ""
		}
		n = n.kids[i]
	}
	return false
}

// places notes the path of every node.
func (n *modelNode) places(path string, into map[*modelNode]string) {
	into[n] = path
	for i, kid := range n.kids {
		token := strconv.Itoa(i)
		if n.object {
			token = n.keys[i]
		}
		kid.places(path+"/"+token, into)
	}
}

func (n *modelNode) clone() *modelNode {
	copied := &modelNode{scalar: n.scalar, object: n.object, keys: slices.Clone(n.keys)}
	for _, kid := range n.kids {
		copied.kids = append(copied.kids, kid.clone())
	}
	return copied
}

// modelStep is one operation and what it did: where each surviving node was before.
type modelStep struct {
	version  uint64
	op, json string
	after    *modelNode
	was      map[*modelNode]string // of nodes of after that were there before, or are copies of those that were
	inserted *modelNode            // into an array
	set      *modelNode            // what the step put somewhere
}

// modelOp carries out an operation on a copy of a document; nil if it does not apply.
func modelOp(before *modelNode, op, path, from string, value *modelNode) *modelStep {
	s := &modelStep{op: op, after: before.clone(), was: map[*modelNode]string{}}
	s.json = fmt.Sprintf(`{"op":%q,"path":%q,"from":%q,"value":%s}`, op, path, from, value.text())
	s.after.places("", s.was)
	root := &modelNode{object: true, keys: []string{"root"}, kids: []*modelNode{s.after}}
	put := value.clone()
	switch op {
	case "remove", "move":
		source := path
		if op == "move" {
			source = from
		}
		if op == "move" && (source == path || strings.HasPrefix(path, source+"/")) {
			return nil
		}
		if put = root.cut("/root" + source); put == nil {
			return nil
		}
	case "copy":
		origin := s.after.find(from)
		if origin == nil {
			return nil
		}
		put = origin.clone()
		copies := map[*modelNode]string{}
		put.places(from, copies)
		for node, place := range copies {
			s.was[node] = place
		}
	case "replace":
		if s.after.find(path) == nil {
			return nil
		}
	}
	if op == "remove" {
		s.after = root.kids[0]
		return s
	}
	if !root.put("/root"+path, put, op == "replace", s) {
		return nil
	}
	s.after, s.set = root.kids[0], put
	return s
}

// cut takes the node at a path out.
func (n *modelNode) cut(path string) *modelNode {
	tokens := tokensOf(path)
	if len(tokens) < 2 {
		return nil
	}
	parent := n.find("/" + strings.Join(tokens[:len(tokens)-1], "/"))
	if parent == nil {
		return nil
	}
	i := parent.child(tokens[len(tokens)-1])
	if i < 0 {
		return nil
	}
	gone := parent.kids[i]
	parent.kids = slices.Delete(parent.kids, i, i+1)
	if parent.object {
		parent.keys = slices.Delete(parent.keys, i, i+1)
	}
	return gone
}

func (n *modelNode) put(path string, v *modelNode, replace bool, s *modelStep) bool {
	tokens := tokensOf(path)
	parent, last := n, tokens[len(tokens)-1]
	if len(tokens) > 1 {
		parent = n.find("/" + strings.Join(tokens[:len(tokens)-1], "/"))
	}
	if parent == nil || parent.scalar != "" {
		return false
	}
	i := parent.child(last)
	switch {
	case i >= 0 && (parent.object || replace):
		parent.kids[i] = v
	case parent.object:
		parent.keys, parent.kids = append(parent.keys, last), append(parent.kids, v)
	default:
		at, err := strconv.Atoi(last)
		if last == "-" {
			at, err = len(parent.kids), nil
		}
		if err != nil || at > len(parent.kids) {
			return false
		}
		parent.kids, s.inserted = slices.Insert(parent.kids, at, v), v
	}
	return true
}

// drawValue draws a small value. Keys are never numbers, so that what is absent from an array was never there.
func drawValue(t *rapid.T, depth int) *modelNode {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 || kind < 3 {
		return &modelNode{scalar: rapid.SampledFrom([]string{"1", "2", "1.0", `"x"`, "null"}).Draw(t, "scalar")}
	}
	n := &modelNode{object: kind < 5}
	for range rapid.IntRange(0, 3).Draw(t, "size") {
		key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
		if n.object && slices.Contains(n.keys, key) {
			continue
		}
		if n.object {
			n.keys = append(n.keys, key)
		}
		n.kids = append(n.kids, drawValue(t, depth-1))
	}
	return n
}

// drawPath draws a path that mostly leads somewhere.
func drawPath(t *rapid.T, n *modelNode) string {
	path := ""
	for rapid.IntRange(0, 3).Draw(t, "deeper") > 0 {
		if len(n.kids) == 0 || rapid.IntRange(0, 4).Draw(t, "elsewhere") == 0 {
			if n.object {
				return path + "/" + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
			}
			return path + "/" + rapid.SampledFrom([]string{"-", "0", "1"}).Draw(t, "index")
		}
		i := rapid.IntRange(0, len(n.kids)-1).Draw(t, "kid")
		token := strconv.Itoa(i)
		if n.object {
			token = n.keys[i]
		}
		path, n = path+"/"+token, n.kids[i]
	}
	return path
}

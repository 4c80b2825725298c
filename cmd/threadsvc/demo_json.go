package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// shownString is how many characters of a string value are shown.
const shownString = 40

// jsonNode is a JSON value for showing: a scalar's text, or the items of an object or array.
type jsonNode struct {
	scalar string
	open   string // "{" or "[", empty for a scalar
	items  []jsonItem
}

// jsonItem is a member of an object, or an element of an array, which has no name.
type jsonItem struct {
	name  string
	value *jsonNode
}

var closers = map[string]string{"{": "}", "[": "]"}

// layoutJSON breaks a JSON text into lines of at most width characters where it can: whatever fits stays on one line.
// Number texts and the order of members stay, long strings are cut.
func layoutJSON(text []byte, width int) ([]string, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	root, err := parseNode(decoder)
	if err != nil {
		return nil, fmt.Errorf("show JSON: %w", err)
	}
	return root.lines("", "", "", width), nil
}

var errUnbalanced = errors.New("unexpected delimiter")

func parseNode(decoder *json.Decoder) (*jsonNode, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch value := token.(type) {
	case json.Delim:
		return parseItems(decoder, value)
	case string:
		return &jsonNode{scalar: quoted(cut(value, shownString))}, nil
	case nil:
		return &jsonNode{scalar: "null"}, nil
	default:
		return &jsonNode{scalar: fmt.Sprint(value)}, nil
	}
}

func parseItems(decoder *json.Decoder, open json.Delim) (*jsonNode, error) {
	node := &jsonNode{open: open.String()}
	if closers[node.open] == "" {
		return nil, errUnbalanced
	}
	for decoder.More() {
		var item jsonItem
		if open == '{' {
			name, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			item.name = quoted(fmt.Sprint(name)) + ": "
		}
		value, err := parseNode(decoder)
		if err != nil {
			return nil, err
		}
		item.value = value
		node.items = append(node.items, item)
	}
	_, err := decoder.Token() // the closing delimiter
	return node, err
}

// flat is the value on one line.
func (n *jsonNode) flat() string {
	if n.open == "" {
		return n.scalar
	}
	parts := make([]string, len(n.items))
	for i, item := range n.items {
		parts[i] = item.name + item.value.flat()
	}
	return n.open + strings.Join(parts, ", ") + closers[n.open]
}

// lines is the value, indented, behind a name and in front of a comma, if there are.
func (n *jsonNode) lines(indent, name, comma string, width int) []string {
	flat := indent + name + n.flat() + comma
	if n.open == "" || len(n.items) == 0 || len([]rune(flat)) <= width {
		return []string{flat}
	}
	if only := n.items[0]; len(n.items) == 1 && n.open == "[" && only.value.open == "{" {
		return only.value.lines(indent, name+"[", "]"+comma, width) // one object needs no lines for its array
	}
	all := []string{indent + name + n.open}
	for i, item := range n.items {
		separator := ","
		if i == len(n.items)-1 {
			separator = ""
		}
		all = append(all, item.value.lines(indent+"  ", item.name, separator, width)...)
	}
	return append(all, indent+closers[n.open]+comma)
}

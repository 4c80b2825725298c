package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// valueChange is a value that differs; before or after is nil if there was, or is, none.
type valueChange struct {
	path          string
	before, after json.RawMessage
}

// compareValues appends where two JSON values differ: members by name, in the order of the later value, and elements by
// place, but for those that both arrays begin and end with. Values are the same if they are written the same way, apart from
// the order of members. It is for reading; the exact difference is the patch that the service makes.
func compareValues(path string, before, after json.RawMessage, all []valueChange) []valueChange {
	if sameValue(before, after) {
		return all
	}
	a, b := openValue(before), openValue(after)
	switch {
	case a.members != nil && b.members != nil:
		return compareMembers(path, a, b, all)
	case a.elements != nil && b.elements != nil:
		return compareElements(path, a.elements, b.elements, all)
	}
	return append(all, valueChange{path, before, after})
}

func compareMembers(path string, a, b openedValue, all []valueChange) []valueChange {
	for _, name := range b.names {
		all = compareOne(path+"/"+pointerEscaper.Replace(name), a.members[name], b.members[name], all)
	}
	for _, name := range a.names {
		if b.members[name] == nil {
			all = append(all, valueChange{path + "/" + pointerEscaper.Replace(name), a.members[name], nil})
		}
	}
	return all
}

func compareElements(path string, a, b []json.RawMessage, all []valueChange) []valueChange {
	first := 0
	for first < min(len(a), len(b)) && sameValue(a[first], b[first]) {
		first++
	}
	endA, endB := len(a), len(b)
	for endA > first && endB > first && sameValue(a[endA-1], b[endB-1]) {
		endA, endB = endA-1, endB-1
	}
	at := func(list []json.RawMessage, i, end int) json.RawMessage {
		if i < end {
			return list[i]
		}
		return nil
	}
	for i := first; i < max(endA, endB); i++ {
		all = compareOne(path+"/"+strconv.Itoa(i), at(a, i, endA), at(b, i, endB), all)
	}
	return all
}

// compareOne compares a value that may be missing on one side.
func compareOne(path string, before, after json.RawMessage, all []valueChange) []valueChange {
	if before == nil || after == nil {
		return append(all, valueChange{path, before, after})
	}
	return compareValues(path, before, after, all)
}

// pointerEscaper escapes a name for a JSON pointer (RFC 6901, section 3).
var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// openedValue is a JSON object or array, opened by one level; a scalar has neither members nor elements.
type openedValue struct {
	names    []string
	members  map[string]json.RawMessage
	elements []json.RawMessage
}

func openValue(text json.RawMessage) (v openedValue) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	open, err := decoder.Token()
	switch {
	case err != nil:
	case open == json.Delim('['):
		v.elements = []json.RawMessage{}
		_ = json.Unmarshal(text, &v.elements) // what the service sends is JSON
	case open == json.Delim('{'):
		v.members = map[string]json.RawMessage{}
		for decoder.More() {
			token, _ := decoder.Token()
			name, ok := token.(string)
			var value json.RawMessage
			if !ok || decoder.Decode(&value) != nil {
				return v
			}
			v.names, v.members[name] = append(v.names, name), value
		}
	}
	return v
}

// sameValue tells whether two values are written the same way, apart from the order of members.
func sameValue(before, after json.RawMessage) bool {
	if bytes.Equal(before, after) {
		return true
	}
	a, b := openValue(before), openValue(after)
	switch {
	case a.members != nil && b.members != nil && len(a.members) == len(b.members):
		for name, value := range a.members {
			if other, ok := b.members[name]; !ok || !sameValue(value, other) {
				return false
			}
		}
		return true
	case a.elements != nil && b.elements != nil && len(a.elements) == len(b.elements):
		for i := range a.elements {
			if !sameValue(a.elements[i], b.elements[i]) {
				return false
			}
		}
		return true
	}
	return false
}

package jsondoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// The model applies patches the slow and obvious way: values are never changed, every edit copies the path to it.
// Scalars are their literals (string), arrays []any, objects modelObject.
type modelObject []modelMember

type modelMember struct {
	key, literal string
	value        any
}

type modelOp struct {
	op, path, from string
	value          any
}

var errModel = errors.New("does not apply")

// modelParse reads JSON with the standard library; its names must be free of lone surrogates.
func modelParse(text []byte) any {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	read := func() (raw string, tok json.Token) {
		start := dec.InputOffset()
		tok, err := dec.Token()
		if err != nil {
			panic(err)
		}
		return strings.Trim(string(text[start:dec.InputOffset()]), " \t\r\n,:"), tok
	}
	var value func() any
	value = func() any {
		raw, tok := read()
		switch tok {
		case json.Delim('['):
			array := []any{}
			for dec.More() {
				array = append(array, value())
			}
			read()
			return array
		case json.Delim('{'):
			object := modelObject{}
			for dec.More() {
				literal, key := read()
				object = object.with(modelMember{key.(string), literal, value()})
			}
			read()
			return object
		}
		return raw
	}
	return value()
}

func (o modelObject) at(key string) int {
	return slices.IndexFunc(o, func(m modelMember) bool { return m.key == key })
}

// with sets a member: in its place if the key exists, else last.
func (o modelObject) with(m modelMember) modelObject {
	o = slices.Clone(o)
	if i := o.at(m.key); i >= 0 {
		o[i].value = m.value
		return o
	}
	return append(o, m)
}

func modelText(v any) string {
	var parts []string
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			parts = append(parts, modelText(e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case modelObject:
		for _, m := range v {
			parts = append(parts, m.literal+":"+modelText(m.value))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return v.(string)
}

// modelEqual compares by value; numbers must have small exponents.
func modelEqual(a, b any) bool {
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, modelEqual)
	case modelObject:
		b, ok := b.(modelObject)
		if !ok || len(a) != len(b) {
			return false
		}
		for _, m := range a {
			if i := b.at(m.key); i < 0 || !modelEqual(m.value, b[i].value) {
				return false
			}
		}
		return true
	}
	x, y := a.(string), ""
	y, ok := b.(string)
	if !ok {
		return false
	}
	if x[0] == '"' && y[0] == '"' {
		var s, t string
		return json.Unmarshal([]byte(x), &s) == nil && json.Unmarshal([]byte(y), &t) == nil && s == t
	}
	r, okR := new(big.Rat).SetString(x)
	s, okS := new(big.Rat).SetString(y)
	return x == y || okR && okS && r.Cmp(s) == 0
}

func modelTokens(ptr string) []string {
	if ptr == "" {
		return nil
	}
	tokens := strings.Split(ptr[1:], "/")
	for i, t := range tokens {
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens
}

func modelIndex(token string, limit int) (int, error) {
	i, err := strconv.Atoi(token)
	if err != nil || strconv.Itoa(i) != token || i < 0 || i >= limit {
		return 0, errModel
	}
	return i, nil
}

func modelGet(v any, tokens []string) (any, error) {
	if len(tokens) == 0 {
		return v, nil
	}
	switch v := v.(type) {
	case []any:
		if i, err := modelIndex(tokens[0], len(v)); err == nil {
			return modelGet(v[i], tokens[1:])
		}
	case modelObject:
		if i := v.at(tokens[0]); i >= 0 {
			return modelGet(v[i].value, tokens[1:])
		}
	}
	return nil, errModel
}

// modelEdit returns v with change made to the container that the last token of a pointer names a place in.
func modelEdit(v any, tokens []string, change func(container any, token string) (any, error)) (any, error) {
	if len(tokens) == 1 {
		return change(v, tokens[0])
	}
	switch v := v.(type) {
	case []any:
		i, err := modelIndex(tokens[0], len(v))
		if err != nil {
			return nil, err
		}
		v = slices.Clone(v)
		v[i], err = modelEdit(v[i], tokens[1:], change)
		return v, err
	case modelObject:
		i := v.at(tokens[0])
		if i < 0 {
			return nil, errModel
		}
		v = slices.Clone(v)
		var err error
		v[i].value, err = modelEdit(v[i].value, tokens[1:], change)
		return v, err
	}
	return nil, errModel
}

func modelAdd(root any, ptr string, value any) (any, error) {
	if ptr == "" {
		return value, nil
	}
	return modelEdit(root, modelTokens(ptr), func(c any, token string) (any, error) {
		switch c := c.(type) {
		case []any:
			if token == "-" {
				token = strconv.Itoa(len(c))
			}
			i, err := modelIndex(token, len(c)+1)
			if err != nil {
				return nil, err
			}
			return slices.Insert(slices.Clone(c), i, value), nil
		case modelObject:
			literal, _ := json.Marshal(token)
			return c.with(modelMember{token, string(literal), value}), nil
		}
		return nil, errModel
	})
}

func modelRemove(root any, ptr string) (any, error) {
	if ptr == "" {
		return nil, errModel
	}
	return modelEdit(root, modelTokens(ptr), func(c any, token string) (any, error) {
		switch c := c.(type) {
		case []any:
			if i, err := modelIndex(token, len(c)); err == nil {
				return slices.Delete(slices.Clone(c), i, i+1), nil
			}
		case modelObject:
			if i := c.at(token); i >= 0 {
				return slices.Delete(slices.Clone(c), i, i+1), nil
			}
		}
		return nil, errModel
	})
}

func modelReplace(root any, ptr string, value any) (any, error) {
	if ptr == "" {
		return value, nil
	}
	return modelEdit(root, modelTokens(ptr), func(c any, token string) (any, error) {
		switch c := c.(type) {
		case []any:
			if i, err := modelIndex(token, len(c)); err == nil {
				c = slices.Clone(c)
				c[i] = value
				return c, nil
			}
		case modelObject:
			if c.at(token) >= 0 {
				return c.with(modelMember{key: token, value: value}), nil
			}
		}
		return nil, errModel
	})
}

// modelApply applies one operation.
func modelApply(root any, o modelOp) (any, error) {
	switch o.op {
	case "add":
		return modelAdd(root, o.path, o.value)
	case "remove":
		return modelRemove(root, o.path)
	case "replace":
		return modelReplace(root, o.path, o.value)
	}
	at := o.path
	if o.op != "test" {
		at = o.from
	}
	v, err := modelGet(root, modelTokens(at))
	switch {
	case err != nil:
		return nil, err
	case o.op == "copy":
		return modelAdd(root, o.path, v)
	case o.op == "test" && modelEqual(v, o.value) || o.op == "move" && o.from == o.path:
		return root, nil
	case o.op == "test" || strings.HasPrefix(o.path, o.from+"/"):
		return nil, errModel
	}
	if root, err = modelRemove(root, o.from); err != nil {
		return nil, err
	}
	return modelAdd(root, o.path, v)
}

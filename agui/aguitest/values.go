package aguitest

import (
	"encoding/json"
	"strings"
)

// texts are JSON string literals: ordinary ones, and those that stores and languages tend to lose.
var texts = []string{`""`, `"a"`, `"Hello, "`, `"é"`, `"\u00e9"`, `"👩‍👧"`, `"\ud83d"`, `"\ude00"`, `"\u0000"`, `"\\u0000"`, `"e\u0301"`,
	`"{\"q\":1}"`, `"<&>\u2028"`, `"\/\n\t"`, `"a longer piece of text, as models emit it"`}

// values are JSON texts of every kind; the first ones read the same everywhere.
var values = []string{`0`, `1.5`, `true`, `"x"`, `[]`, `{}`, `[1,2,3]`, `{"a":1}`, `{"a":{"b":[1]},"list":[1,2]}`, `{"n":9007199254740993}`,
	`{"f":1.10,"e":1e400,"z":-0}`, `{ "b" : 1 , "a" : 2 }`, `{"a":1,"a":2}`, `{"\u0000":"\u0000","\ud83d":1}`, `[ null , [ ] ]`}

const plainValues = 9

func (p *producer) text() string { return p.pick(texts...) }

func (p *producer) notNull() string {
	if p.opts.Plain {
		return p.pick(values[:plainValues]...)
	}
	return p.pick(values...)
}

func (p *producer) value() string {
	if p.chance(10) {
		return "null"
	}
	return p.notNull()
}

// content is an object.
func (p *producer) content() string {
	for range 5 {
		if v := p.notNull(); v[0] == '{' {
			return v
		}
	}
	return `{"list":[]}`
}

func (p *producer) metadata() string {
	name := p.pick(`"k"`, `"usage"`, `"\u006b"`, `"m1"`, `"m2"`)
	if p.chance(20) {
		return `{ ` + name + ` : ` + p.value() + ` , "k" : null }`
	}
	return `{` + name + `:` + p.value() + `}`
}

// patch is a JSON Patch, which may or may not apply.
func (p *producer) patch() string {
	var ops []string
	for range p.number("operations", 0, 3) {
		path := quote(p.pick("/a", "/a", "/b", "/a/b", "/list/-", "/list/0", "/n", "/absent/deeper", ""))
		switch op := p.pick("add", "add", "add", "replace", "remove", "copy", "move", "test", "frobnicate"); op {
		case "copy", "move":
			from := quote(p.pick("/a", "/b", "/list", "/n"))
			ops = append(ops, string(p.object("op", quote(op), "from", from, "path", path)))
		case "remove":
			ops = append(ops, string(p.object("op", quote(op), "path", path, "note", "1")))
		default:
			ops = append(ops, string(p.object("op", quote(op), "path", path, "value", p.content())))
		}
	}
	return list(ops)
}

// object writes an object of names and the texts of their values, with or without white space.
func (p *producer) object(members ...string) []byte {
	open, comma, colon, end := "{", ",", ":", "}"
	if p.chance(10) {
		open, comma, colon, end = "{ ", " ,\n", " : ", " }"
	}
	var b strings.Builder
	b.WriteString(open)
	for i := 0; i+1 < len(members); i += 2 {
		if i > 0 {
			b.WriteString(comma)
		}
		b.WriteString(quote(members[i]) + colon + members[i+1])
	}
	b.WriteString(end)
	return []byte(b.String())
}

func list(elements []string) string { return "[" + strings.Join(elements, ",") + "]" }

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// unquoted is what encoding/json makes of a literal, which is coarser than the protocol: enough to tell apart.
func unquoted(literal string) string {
	var s string
	_ = json.Unmarshal([]byte(literal), &s)
	return s
}

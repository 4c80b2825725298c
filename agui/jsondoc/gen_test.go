package jsondoc

import (
	"encoding/json"
	"strconv"
	"strings"
)

// generator makes small random documents, and patches whose pointers mostly lead somewhere.
type generator struct {
	intn func(n int) int // uniform in [0, n)
	// tame keeps to the range in which the reference implementation is right.
	tame bool
}

func pick[T any](g *generator, from []T) T { return from[g.intn(len(from))] }

var (
	genKeys    = []string{`"a"`, `"b"`, `"c"`, `"a/b"`, `"m~n"`, `"é"`, `"0"`, `"1"`, `"-"`, `"\u0041"`, `"x\ty"`}
	genScalars = []string{
		`null`, `true`, `false`, `0`, `-0`, `1`, `1.0`, `10e-1`, `100`, `1E2`, `1.10`, `9007199254740993`,
		`""`, `"a"`, `"\u0041"`, `"A"`, `"\ud83d\ude00"`, `"😀"`, `"\u0000"`, `"a\/b"`,
	}
	genTokens = []string{"a", "b", "zz", "-", "0", "1", "2", "-1", "1e0", "99999999999999999999", "a~1b", "m~0n", "A"}
)

func (g *generator) key() string {
	if !g.tame && g.intn(12) == 0 {
		return `""`
	}
	return pick(g, genKeys)
}

func (g *generator) value(depth int) string {
	kind := g.intn(12)
	if depth == 0 {
		kind = 0
	}
	var parts []string
	switch n := g.intn(5); {
	case kind > 10:
		return g.wide()
	case kind > 6:
		for range n {
			parts = append(parts, g.value(depth-1))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case kind > 2:
		seen := map[string]bool{}
		for range n {
			key := g.key()
			if g.tame && seen[key] {
				continue
			}
			seen[key] = true
			parts = append(parts, key+":"+g.value(depth-1))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return pick(g, genScalars)
}

// wide makes an object with so many members that it has an index.
func (g *generator) wide() string {
	var parts []string
	for i := range 2 + g.intn(20) {
		parts = append(parts, `"k`+strconv.Itoa(i)+`":`+pick(g, genScalars))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (g *generator) doc() string {
	if !g.tame {
		return g.value(3)
	}
	for {
		if text := g.value(3); text[0] == '{' || text[0] == '[' {
			return text
		}
	}
}

// pointer walks from root towards a random value and sometimes off the path.
func (g *generator) pointer(root any) string {
	ptr, v := "", root
	for g.intn(4) > 0 {
		switch c := v.(type) {
		case []any:
			if len(c) > 0 {
				i := g.intn(len(c))
				ptr, v = ptr+"/"+strconv.Itoa(i), c[i]
				continue
			}
		case modelObject:
			if len(c) > 0 {
				m := c[g.intn(len(c))]
				ptr, v = ptr+"/"+encodeToken(m.key), m.value
				continue
			}
		}
		break
	}
	if ptr == "" && g.tame || g.intn(5) == 0 {
		tokens := genTokens
		if !g.tame {
			tokens = append(tokens, "01", "+1", "00", "")
		}
		ptr += "/" + pick(g, tokens)
	}
	return ptr
}

func encodeToken(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// operation makes an operation for a document, as the model has it and as text.
func (g *generator) operation(root any) (modelOp, string) {
	names := []string{"add", "add", "replace", "remove", "move", "copy", "test"}
	if g.tame {
		names = names[:6]
	}
	o := modelOp{op: pick(g, names), path: g.pointer(root)}
	text := `{"op":"` + o.op + `","path":` + quoted(o.path)
	switch o.op {
	case "add", "replace", "test":
		value := g.value(2)
		if current, err := modelGet(root, modelTokens(o.path)); o.op == "test" && err == nil && g.intn(3) > 0 {
			value = modelText(current)
		}
		o.value = modelParse([]byte(value))
		text += `,"value":` + value
	case "move", "copy":
		o.from = g.pointer(root)
		for g.tame && o.op == "move" && strings.HasPrefix(o.path+"/", o.from+"/") {
			o.from = g.pointer(root)
		}
		text += `,"from":` + quoted(o.from)
	}
	return o, text + "}"
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// patch makes a patch of up to n operations, and the document after it; ok is false when it does not apply.
func (g *generator) patch(root any, n int) (text string, after any, ok bool) {
	var ops []string
	after, ok = root, true
	for range 1 + g.intn(n) {
		o, op := g.operation(after)
		ops = append(ops, op)
		if !ok {
			continue
		}
		if next, err := modelApply(after, o); err == nil {
			after = next
		} else {
			ok = false
		}
	}
	return "[" + strings.Join(ops, ",") + "]", after, ok
}

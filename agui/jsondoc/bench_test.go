package jsondoc

import (
	"fmt"
	"testing"
)

// stateOf builds an agent state of about n bytes: a few plain members, a wide object and a long array of records.
func stateOf(n int) []byte {
	text := []byte(`{"count":1,"plan":{"status":"open","steps":["a","b"]},"byId":{`)
	record := func(i int) string {
		return fmt.Sprintf(`{"id":%d,"title":"Record number %d","done":false,"score":%d.5,"tags":["x","y"]}`, i, i, i)
	}
	for i := 0; len(text) < n/2; i++ {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `"r%d":%s`, i, record(i))
	}
	text = append(text, `},"list":[`...)
	for i := 0; len(text) < n || i == 0; i++ {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, record(i)...)
	}
	return append(text, "]}"...)
}

func BenchmarkApply(b *testing.B) {
	patches := map[string]string{
		"replace": `[{"op":"replace","path":"/byId/r1/score","value":17}]`,
		"add":     `[{"op":"add","path":"/byId/r1/note","value":"hello"}]`,
		"append":  `[{"op":"add","path":"/list/-","value":{"id":1,"done":true}}]`,
	}
	for _, size := range []int{1 << 10, 100 << 10, 1 << 20, 10 << 20} {
		for _, op := range []string{"replace", "add", "append"} {
			b.Run(fmt.Sprintf("%s/%dKB", op, size>>10), func(b *testing.B) {
				d, err := Parse(stateOf(size), Limits{Size: 1 << 40})
				if err != nil {
					b.Fatal(err)
				}
				patch, err := ParsePatch([]byte(patches[op]), Limits{})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := d.Apply(patch); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkParsePatch(b *testing.B) {
	text := []byte(`[{"op":"replace","path":"/byId/r1/score","value":17}]`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParsePatch(text, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 10 << 20} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			text := stateOf(size)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(text, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendTo(b *testing.B) {
	d, err := Parse(stateOf(1<<20), Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(d.Size()))
	dst := make([]byte, 0, d.Size())
	for b.Loop() {
		dst = d.AppendTo(dst[:0])
	}
}

func BenchmarkUnquote(b *testing.B) {
	plain := []byte(`"a token of text "`)
	for b.Loop() {
		if _, err := Unquote(plain); err != nil {
			b.Fatal(err)
		}
	}
}

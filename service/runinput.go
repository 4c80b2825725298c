package service

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/threadsvc/threadsvc/agui"
)

// inputText writes the text of a RunAgentInput from the fields of a request; absent ones are left out. Each value has to be
// one JSON value by itself, or it could bring members of its own.
type inputText struct {
	depth int // of nesting that values may have
	text  []byte
	wrong *agui.Violation // the first value that is not one
}

func (w *inputText) check(path string, value []byte) {
	var v *agui.Violation
	if w.wrong == nil && errors.As(agui.CheckJSON(value, w.depth), &v) {
		w.wrong = &agui.Violation{Code: v.Code, Path: path, Detail: v.Detail}
	}
}

func (w *inputText) name(name string) {
	separator := byte(',')
	if len(w.text) == 0 {
		separator = '{'
	}
	w.text = append(append(w.text, separator, '"'), name...)
	w.text = append(w.text, '"', ':')
}

func (w *inputText) string(name, value string) {
	if value != "" {
		text, _ := json.Marshal(value)
		w.name(name)
		w.text = append(w.text, text...)
	}
}

func (w *inputText) json(name string, value []byte) {
	if len(value) > 0 {
		w.check("/"+name, value)
		w.name(name)
		w.text = append(w.text, value...)
	}
}

func (w *inputText) list(name string, values [][]byte) {
	if len(values) == 0 {
		return
	}
	w.name(name)
	for i, value := range values {
		w.check(fmt.Sprintf("/%s/%d", name, i), value)
		separator := byte(',')
		if i == 0 {
			separator = '['
		}
		w.text = append(append(w.text, separator), value...)
	}
	w.text = append(w.text, ']')
}

func (w *inputText) close() []byte {
	if len(w.text) == 0 {
		return []byte("{}")
	}
	return append(w.text, '}')
}

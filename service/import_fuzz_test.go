package service_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/archive"
)

// FuzzImport gives entries that anybody may have written, in an archive that is otherwise in order: whatever they say, they are
// judged, and nothing panics.
func FuzzImport(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[7,{"id":"a","role":"assistant","toolCalls":7},{"id":"a"}],"state":1}`, `{"statePatch":[{"op":"copy","from":"","path":"/a"}]}`,
		`{"type":"REWOUND","toVersion":9,"messages":[{"id":"m","role":"assistant","toolCalls":[{"id":7}]}],"tracking":{"open":{"x":{}},"lanes":[1]}}`,
		`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":{"threadId":"t","runId":"r","messages":[]}}`,
		`{"type":"EVENT_OMITTED","runId":"r"}`, `{"type":"FORKED","origin":{"threadId":"x"},"state":{"a":1}}`, `{"runId":"r","resume":7}`,
	} {
		f.Add(uint8(1), []byte(seed), uint8(3), []byte(seed))
		f.Add(uint8(2), []byte(seed), uint8(1), []byte(`{"type":"TOOL_CALL_ARGS","toolCallId":"a","delta":"x"}`))
	}
	f.Fuzz(func(t *testing.T, kind1 uint8, payload1 []byte, kind2 uint8, payload2 []byte) {
		var stored []byte
		head := store.Head{ThreadID: "t", Version: 2}
		for _, e := range []agui.Entry{{Kind: agui.Kind(kind1), Payload: payload1}, {Kind: agui.Kind(kind2), Payload: payload2, Offset: 1}} {
			one := e.Append(nil)
			stored, head.Hash = append(stored, one...), agui.Chain(head.Hash, one)
		}
		var file bytes.Buffer
		w, err := archive.NewWriter(&file, archive.HeadOf(&head))
		err = errors.Join(err, w.Segment(&store.Segment{FirstVersion: 1, LastVersion: 2, Entries: stored}, 2), w.Close())
		if err != nil {
			t.Fatal(err)
		}
		limits := agui.DefaultLimits()
		limits.State, limits.Context, limits.Event = 1<<16, 1<<17, 1<<16
		_, _ = service.VerifyArchive(&file, limits)
	})
}

package agui

import "testing"

func TestBinaryParts(t *testing.T) {
	t.Parallel()
	result := func(parts string) string {
		return `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[` + parts + `]}`
	}
	upgraded := func(binary, want string, found ...string) decodeCase {
		return decodeCase{name: binary, text: result(binary), want: result(want), found: found}
	}
	runDecodeCases(t, Decode, []decodeCase{
		upgraded(`{"type":"binary","mimeType":"image/png","url":"https://e/\u0061"}`,
			`{"type":"image","source":{"type":"url","value":"https://e/\u0061","mimeType":"image/png"}}`),
		upgraded(`{"mimeType":"audio\/ogg","data":"AA==","url":"u","id":"f","filename":"a.ogg","type":"binary"}`,
			`{"type":"audio","source":{"type":"data","value":"AA==","mimeType":"audio\/ogg"},"metadata":{"filename":"a.ogg"}}`),
		upgraded(`{"type":"binary","mimeType":"video/mp4","data":"","url":"u","filename":""}`,
			`{"type":"video","source":{"type":"url","value":"u","mimeType":"video/mp4"}}`),
		upgraded(`{"type":"binary","mimeType":"imagery","data":"d","url":null,"filename":null}`,
			`{"type":"document","source":{"type":"data","value":"d","mimeType":"imagery"}}`),
		upgraded(`{"type":"text","text":"x"}, {"type":"binary","mimeType":"a/b","data":"d"}`,
			`{"type":"text","text":"x"}, {"type":"document","source":{"type":"data","value":"d","mimeType":"a/b"}}`),
		upgraded(`{"type":"binary","size":3,"mimeType":"a/b","data":"d"}`,
			`{"type":"document","source":{"type":"data","value":"d","mimeType":"a/b"}}`, "PROPERTY_UNKNOWN /content/0/size"),

		upgraded(`{"type":"binary","mimeType":"image/png","id":"file-1"}`, ``, "MEMBER_UNKNOWN /content/0"),
		upgraded(`{"type":"binary","url":"u"}`, ``, "MEMBER_UNKNOWN /content/0"),
		upgraded(`{"type":"binary","mimeType":3,"url":"u","x":1}`, ``, "MEMBER_UNKNOWN /content/0"),
		upgraded(`{"type":"binary","mimeType":"image/png","url":3}`, ``, "FIELD_MALFORMED /content/0/url"),
		upgraded(`{"type":"binary","mimeType":"image/png","url":"u","url":"v"}`, ``, "JSON_MALFORMED /content/0/url"),
	})
}

func TestBinaryPartsOccurInMessages(t *testing.T) {
	t.Parallel()
	binary := `[{"type":"binary","mimeType":"image/png","url":"u"}]`
	image := `[{"type":"image","source":{"type":"url","value":"u","mimeType":"image/png"}}]`
	messages := func(parts string) string {
		return `"messages":[{"id":"u","role":"user","content":` + parts + `},{"id":"t","role":"tool","toolCallId":"c","content":` + parts + `}]`
	}
	ids := `"threadId":"t","runId":"r",`
	snapshot := func(parts string) string { return `{"type":"MESSAGES_SNAPSHOT",` + messages(parts) + `}` }
	input := func(parts string) string { return `{` + ids + messages(parts) + `}` }
	started := func(parts string) string { return `{"type":"RUN_STARTED",` + ids + `"input":` + input(parts) + `}` }
	runDecodeCases(t, Decode, []decodeCase{
		{name: "snapshot", text: snapshot(binary), want: snapshot(image)},
		{name: "echoed input", text: started(binary), want: started(image)},
	})
	runDecodeCases(t, DecodeInput, []decodeCase{{name: "input", text: input(binary), want: input(image)}})
}

package agui

import "bytes"

// binaryShape is the content part that protocol versions up to 0.0.47 used for media of every kind. It is an option of
// the content part union, so that its shape is judged like that of others, and then upgraded.
var binaryShape = closedShape("binary part",
	req("type", enumShape("binary")), opt("mimeType", anyShape),
	opt("data", maybeTextShape), opt("url", maybeTextShape), opt("filename", maybeTextShape), opt("id", anyShape))

// binary judges the binary content part at pos and replaces it by the media part of its MIME type, without a warning.
// Non-empty data wins over a URL. A part without a MIME type, or with neither data nor URL, has no successor: it is gone.
func (d *decoder) binary() verdict {
	start, edits := d.pos, len(d.edits)
	if v := d.object(binaryShape); v != kept {
		return v
	}
	d.edits = d.edits[:edits]
	part := d.text[start:d.pos]
	mime, source, value := stringMember(part, "mimeType"), "data", stringMember(part, "data")
	if isBlank(value) {
		source, value = "url", stringMember(part, "url")
	}
	if mime == nil || isBlank(value) {
		return d.unrecognised("binary")
	}
	with := mediaPart(mime, source, value, stringMember(part, "filename"))
	d.edits = append(d.edits, textEdit{start: start, end: d.pos, with: with})
	return kept
}

// mediaPart writes the successor of a binary part. All values are JSON string literals and are kept as they came.
func mediaPart(mime []byte, source string, value, filename []byte) []byte {
	out := append([]byte(`{"type":"`), mediaType(unquoted(mime))...)
	out = append(append(out, `","source":{"type":"`...), source...)
	out = append(append(out, `","value":`...), value...)
	out = append(append(out, `,"mimeType":`...), mime...)
	out = append(out, '}')
	if !isBlank(filename) {
		out = append(append(out, `,"metadata":{"filename":`...), filename...)
		out = append(out, '}')
	}
	return append(out, '}')
}

func mediaType(mime []byte) string {
	for _, media := range [...]string{"image", "audio", "video"} {
		if bytes.HasPrefix(mime, []byte(media+"/")) {
			return media
		}
	}
	return "document"
}

// stringMember returns the literal of an object's string member, nil if there is none.
func stringMember(object []byte, name string) []byte {
	value, _ := findMember(object, skipSpace(object, 1), name)
	if value < 0 || object[value] != '"' {
		return nil
	}
	return object[value:skipString(object, value)]
}

// isBlank reports whether a string literal is absent or the empty string.
func isBlank(literal []byte) bool { return len(literal) <= len(`""`) }

package jsondoc

import "bytes"

// Operations returns the text of a patch's operations, without the brackets around them and the white space next to those. It
// does not read them, and reports false if the text is not that of an array.
func Operations(patch []byte) (ops []byte, ok bool) {
	patch = bytes.TrimSpace(patch)
	if len(patch) < 2 || patch[0] != '[' || patch[len(patch)-1] != ']' {
		return nil, false
	}
	return bytes.TrimSpace(patch[1 : len(patch)-1]), true
}

// JoinPatches makes one patch that does what the patches do one after the other, as one text is read and kept at less cost
// than many small ones. It holds their Operations as they are, with commas between. What is no array is returned instead:
// it says so when it is read.
func JoinPatches[T ~[]byte](patches ...T) T {
	size := 2
	for _, patch := range patches {
		size += len(patch)
	}
	joined := append(make(T, 0, size), '[')
	for _, patch := range patches {
		ops, ok := Operations(patch)
		if !ok {
			return patch
		}
		if len(joined) > 1 && len(ops) > 0 {
			joined = append(joined, ',')
		}
		joined = append(joined, ops...)
	}
	return append(joined, ']')
}

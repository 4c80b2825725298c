package jsondoc

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MalformedError says that a text is not what it has to be: not JSON, not a patch, not a pointer. Such a text is
// wrong whatever document it meets.
type MalformedError struct {
	// Path is a JSON pointer into the refused text, cut to 256 bytes; "" is the text as a whole.
	Path string
	// Reason is a short fixed sentence. It names members and byte positions, and never repeats the text.
	Reason string

	unknownOp bool // the text is well-formed but for an operation's name
}

// Error implements error.
func (e *MalformedError) Error() string {
	if e.Path == "" {
		return "jsondoc: malformed: " + e.Reason
	}
	return fmt.Sprintf("jsondoc: malformed at %q: %s", shorten(e.Path, 64), e.Reason)
}

// Code tells why a well-formed patch does not apply to a document.
type Code string

// The codes of an ApplyError.
const (
	// PathNotFound: an object on the way, or the last one, has no such member.
	PathNotFound Code = "PATH_NOT_FOUND"
	// IndexOutOfRange: the array has no such element, which includes "-" anywhere but as the last token of an addition.
	IndexOutOfRange Code = "INDEX_OUT_OF_RANGE"
	// InvalidIndex: a token that meets an array is not an index of RFC 6901 section 4 (digits without leading zeros, or "-").
	InvalidIndex Code = "INVALID_INDEX"
	// NotAContainer: the pointer leads into a string, number, boolean or null.
	NotAContainer Code = "NOT_A_CONTAINER"
	// TestFailed: the value at the path is another one (RFC 6902 section 4.6).
	TestFailed Code = "TEST_FAILED"
	// MoveIntoChild: a value cannot become part of itself (RFC 6902 section 4.4).
	MoveIntoChild Code = "MOVE_INTO_CHILD"
	// RootRemoval: "remove" of the whole document would leave no JSON value.
	RootRemoval Code = "ROOT_REMOVAL"
	// LimitSize: the text or the document would be longer than Limits.Size.
	LimitSize Code = "LIMIT_SIZE"
	// LimitDepth: containers would nest deeper than Limits.Depth.
	LimitDepth Code = "LIMIT_DEPTH"
	// LimitOps: the patch has more than Limits.Ops operations.
	LimitOps Code = "LIMIT_OPS"
	// LimitWork: the patch made the engine copy or read more of the document than Limits.Work.
	LimitWork Code = "LIMIT_WORK"
)

// ApplyError says that a well-formed patch does not apply, or that a well-formed text exceeds a limit. The document
// is as it was before.
type ApplyError struct {
	// Op is the index of the failing operation in the patch text, or -1 when the text as a whole exceeds a limit.
	Op int
	// Pointer is the failing "path" or "from" in full; it is as long as the patch made it.
	Pointer Pointer
	// Code is the reason.
	Code Code
}

// Error implements error. The text is short: it cuts the pointer and never repeats values.
func (e *ApplyError) Error() string {
	if e.Op < 0 {
		return "jsondoc: " + string(e.Code)
	}
	return fmt.Sprintf("jsondoc: operation %d does not apply at %q: %s", e.Op, shorten(e.Pointer.String(), 64), e.Code)
}

// shorten cuts s to at most n bytes of valid UTF-8.
func shorten(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, string(utf8.RuneError))
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

package agui

import "fmt"

// Code is the stable name of a warning or a violation. Codes are part of the service's contract: they are never renamed.
type Code string

// Warnings: the event (or the rest of it) was accepted.
const (
	// EventUnknown: an event type the protocol does not know was dropped.
	EventUnknown Code = "EVENT_UNKNOWN"
	// PropertyUnknown: a property that a closed object does not have was stripped.
	PropertyUnknown Code = "PROPERTY_UNKNOWN"
	// MemberUnknown: an unknown member of a discriminated union was removed, with what cannot be without it.
	MemberUnknown Code = "MEMBER_UNKNOWN"
	// OperationUnknown: a JSON Patch operation with an unknown "op" was dropped from its patch.
	OperationUnknown Code = "OPERATION_UNKNOWN"
	// EventTranslated: an event of a retired shape was translated into its successor.
	EventTranslated Code = "EVENT_TRANSLATED"
	// VersionNewer: the producer declares a protocol version newer than the one spoken here.
	VersionNewer Code = "VERSION_NEWER"
	// VersionUnreadable: the producer's protocol version is not MAJOR.MINOR.
	VersionUnreadable Code = "VERSION_UNREADABLE"
	// PatchNotApplied: a well-formed patch does not apply; the prior value was kept.
	PatchNotApplied Code = "PATCH_NOT_APPLIED"
	// PatchLimit: a patch would exceed a limit of the service; the prior value was kept.
	PatchLimit Code = "PATCH_LIMIT"
	// TargetUnknown: the message or tool call an event refers to is not held; the event built nothing.
	TargetUnknown Code = "TARGET_UNKNOWN"
	// TargetConflict: the message an event refers to has a role that the event must not touch; the event built nothing.
	TargetConflict Code = "TARGET_CONFLICT"
	// ToolResultOrphaned: a tool result answers a call that no message holds. It is kept, but left out of run inputs.
	ToolResultOrphaned Code = "TOOL_RESULT_ORPHANED"
	// ToolCallRenamed: a start for a tool call already held changed its name.
	ToolCallRenamed Code = "TOOL_CALL_RENAMED"
	// EntryUnreadable: a stored entry could not be read back and was passed over.
	EntryUnreadable Code = "ENTRY_UNREADABLE"
)

// Violations: the event was refused and the run fails, unless the comment says otherwise.
const (
	// JSONMalformed: the event is not one JSON object in valid UTF-8, or a closed object repeats a name.
	JSONMalformed Code = "JSON_MALFORMED"
	// JSONTooDeep: the event nests deeper than the limit.
	JSONTooDeep Code = "JSON_TOO_DEEP"
	// FieldMissing: a required field is absent.
	FieldMissing Code = "FIELD_MISSING"
	// FieldMalformed: a known field has a value of the wrong type or outside its closed set.
	FieldMalformed Code = "FIELD_MALFORMED"
	// IDInvalid: an identifier is empty, longer than the limit, or contains NUL or a lone surrogate.
	IDInvalid Code = "ID_INVALID"
	// PatchMalformed: a patch is not a well-formed RFC 6902 document.
	PatchMalformed Code = "PATCH_MALFORMED"

	// SequenceNotStarted: the first event is neither RUN_STARTED nor RUN_ERROR.
	SequenceNotStarted Code = "SEQUENCE_NOT_STARTED"
	// SequenceRunActive: RUN_STARTED arrived while a run is active.
	SequenceRunActive Code = "SEQUENCE_RUN_ACTIVE"
	// SequenceRunOver: an event other than the allowed ones arrived after the run's terminal event.
	SequenceRunOver Code = "SEQUENCE_RUN_OVER"
	// SequenceNotOpen: a content or end event for an item that is not open.
	SequenceNotOpen Code = "SEQUENCE_NOT_OPEN"
	// SequenceAlreadyOpen: a start event for an item that is open.
	SequenceAlreadyOpen Code = "SEQUENCE_ALREADY_OPEN"
	// SequenceStillOpen: RUN_FINISHED arrived while an item is open.
	SequenceStillOpen Code = "SEQUENCE_STILL_OPEN"
	// ThreadMismatch: an event names another thread than the stream's.
	ThreadMismatch Code = "THREAD_MISMATCH"
	// RunMismatch: RUN_FINISHED or the first RUN_STARTED names another run.
	RunMismatch Code = "RUN_MISMATCH"
	// RunReused: RUN_STARTED names a run that the thread has already had.
	RunReused Code = "RUN_REUSED"
	// OwnerMismatch: a continuation's subagentRunId disagrees with its opener's.
	OwnerMismatch Code = "OWNER_MISMATCH"
	// SubagentUnknown: a subagent that is not active, or a parent that was never announced.
	SubagentUnknown Code = "SUBAGENT_UNKNOWN"
	// SubagentReused: SUBAGENT_STARTED for a subagent that this run has already had.
	SubagentReused Code = "SUBAGENT_REUSED"
	// InterruptRepeated: two interrupts of a run share an id.
	InterruptRepeated Code = "INTERRUPT_REPEATED"
	// ChunkIncomplete: a chunk that opens an item lacks its identifiers.
	ChunkIncomplete Code = "CHUNK_INCOMPLETE"
	// ChunkConflict: a chunk repeats an opener's field with another value.
	ChunkConflict Code = "CHUNK_CONFLICT"
	// ChunkAmbiguous: a chunk without id and owner could continue several items.
	ChunkAmbiguous Code = "CHUNK_AMBIGUOUS"

	// EventTooLarge: the event is longer than the limit. The run stays open: a smaller event may take its offset.
	EventTooLarge Code = "EVENT_TOO_LARGE"
	// ContextTooLarge: the event would grow the thread beyond its limit. The run stays open, as for EventTooLarge.
	ContextTooLarge Code = "CONTEXT_TOO_LARGE"
)

// Warning reports something that was dropped, stripped, translated or not applied while an event was accepted.
type Warning struct {
	Code Code
	// Path is the JSON pointer (RFC 6901) of what is concerned, within the event or run input as it was received.
	Path string
	// Detail is a short text for people: a type name, an identifier, a reason. It never contains content.
	Detail string
	// Removed is the JSON text that was taken away, nil if nothing was. It aliases the received text.
	Removed Value
}

// Violation is the refusal of an event or a run input. It implements error.
type Violation struct {
	Code Code
	// Path is the JSON pointer of what is wrong, within the event or run input as it was received.
	Path string
	// Detail is a short text for people that never contains content.
	Detail string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s at %q: %s", v.Code, v.Path, v.Detail)
}

// Fatal reports whether the violation fails the run. The others only refuse the event: the run stays open and the
// producer may send another event with the same offset.
func (v *Violation) Fatal() bool {
	return v.Code != EventTooLarge && v.Code != ContextTooLarge
}

package agui

// EventType names an event, as in its "type" member.
type EventType string

// The 31 events of the protocol (schema.json, EventType), and the five of version 0.0.45 that Decode still reads.
const (
	RunStarted  EventType = "RUN_STARTED"
	RunFinished EventType = "RUN_FINISHED"
	RunError    EventType = "RUN_ERROR"

	StepStarted  EventType = "STEP_STARTED"
	StepFinished EventType = "STEP_FINISHED"

	TextMessageStart   EventType = "TEXT_MESSAGE_START"
	TextMessageContent EventType = "TEXT_MESSAGE_CONTENT"
	TextMessageEnd     EventType = "TEXT_MESSAGE_END"
	TextMessageChunk   EventType = "TEXT_MESSAGE_CHUNK"

	ToolCallStart  EventType = "TOOL_CALL_START"
	ToolCallArgs   EventType = "TOOL_CALL_ARGS"
	ToolCallEnd    EventType = "TOOL_CALL_END"
	ToolCallChunk  EventType = "TOOL_CALL_CHUNK"
	ToolCallResult EventType = "TOOL_CALL_RESULT"

	StateSnapshot    EventType = "STATE_SNAPSHOT"
	StateDelta       EventType = "STATE_DELTA"
	MessagesSnapshot EventType = "MESSAGES_SNAPSHOT"

	ActivitySnapshot EventType = "ACTIVITY_SNAPSHOT"
	ActivityDelta    EventType = "ACTIVITY_DELTA"

	ReasoningStart          EventType = "REASONING_START"
	ReasoningEnd            EventType = "REASONING_END"
	ReasoningMessageStart   EventType = "REASONING_MESSAGE_START"
	ReasoningMessageContent EventType = "REASONING_MESSAGE_CONTENT"
	ReasoningMessageEnd     EventType = "REASONING_MESSAGE_END"
	ReasoningMessageChunk   EventType = "REASONING_MESSAGE_CHUNK"
	ReasoningEncryptedValue EventType = "REASONING_ENCRYPTED_VALUE"

	SubagentStarted  EventType = "SUBAGENT_STARTED"
	SubagentFinished EventType = "SUBAGENT_FINISHED"
	SubagentError    EventType = "SUBAGENT_ERROR"

	Raw    EventType = "RAW"
	Custom EventType = "CUSTOM"

	ThinkingStart       EventType = "THINKING_START"
	ThinkingEnd         EventType = "THINKING_END"
	ThinkingTextStart   EventType = "THINKING_TEXT_MESSAGE_START"
	ThinkingTextContent EventType = "THINKING_TEXT_MESSAGE_CONTENT"
	ThinkingTextEnd     EventType = "THINKING_TEXT_MESSAGE_END"
)

// Event is one decoded event. Text is its canonical JSON text; the other fields are those the later stages read.
//
// Identifiers are decoded strings and empty when absent, since an identifier is never empty. The fields of type Value
// are the JSON text of the member as it came, nil when absent; they alias Text.
type Event struct {
	Type EventType
	Text []byte

	ThreadID, RunID, ParentRunID           string
	MessageID, ToolCallID, ParentMessageID string
	SubagentRunID, ParentSubagentRunID     string
	EntityID                               string

	Role    string // of text and reasoning openers; empty when absent
	Subtype string // of REASONING_ENCRYPTED_VALUE

	// Keep is true for an ACTIVITY_SNAPSHOT with "replace": false.
	Keep bool

	Delta, Name, ToolCallName, StepName   Value // JSON strings
	ActivityType, ProtocolVersion         Value // JSON strings
	EncryptedValue, EncryptedValueType    Value // JSON strings
	Code, Message                         Value // JSON strings, of RUN_ERROR
	Content, Snapshot, Patch, Messages    Value
	Metadata, RawEvent, Result            Value
	Outcome, Usage, Input                 Value
	Timestamp                             Value
	Tools, Context, ForwardedProps, State Value // of a run input
	Resume                                Value // of a run input
	StateLacks                            Value // of a run input whose State is an earlier one: Resync.Text; never read from JSON
}

// Value is the JSON text of one value, exactly as it was received. It is nil when the value is absent.
type Value []byte

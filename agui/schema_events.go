package agui

// eventShapes holds the shape of every event type that Decode accepts.
var eventShapes = byName(
	runEvent(RunStarted, req("threadId", idShape), req("runId", idShape), opt("parentRunId", idShape),
		opt("protocolVersion", textShape), opt("input", echoedInputShape)),
	runEvent(RunFinished, req("threadId", idShape), req("runId", idShape), opt("result", notNullShape),
		opt("outcome", runOutcomeShape), opt("usage", usageShape)),
	runEvent(RunError, req("message", textShape), opt("code", textShape), opt("usage", usageShape)),
	ownedEvent(StepStarted, req("stepName", textShape)),
	ownedEvent(StepFinished, req("stepName", textShape)),

	ownedEvent(TextMessageContent, req("messageId", idShape), req("delta", textShape)),
	ownedEvent(TextMessageStart, req("messageId", idShape), opt("role", textRoleShape), opt("name", textShape)),
	ownedEvent(TextMessageEnd, req("messageId", idShape)),
	ownedEvent(TextMessageChunk, opt("messageId", idShape), opt("role", textRoleShape), opt("delta", textShape),
		opt("name", textShape)),

	ownedEvent(ToolCallStart, req("toolCallId", idShape), req("toolCallName", textShape), opt("parentMessageId", idShape)),
	ownedEvent(ToolCallArgs, req("toolCallId", idShape), req("delta", textShape)),
	ownedEvent(ToolCallEnd, req("toolCallId", idShape)),
	ownedEvent(ToolCallChunk, opt("toolCallId", idShape), opt("toolCallName", textShape), opt("parentMessageId", idShape),
		opt("delta", textShape)),
	ownedEvent(ToolCallResult, req("messageId", idShape), req("toolCallId", idShape), req("content", textPartsShape),
		opt("role", enumShape("tool"))),

	ownedEvent(StateSnapshot, req("snapshot", anyShape)),
	ownedEvent(StateDelta, req("delta", patchShape)),
	runEvent(MessagesSnapshot, req("messages", arrayShape(messageShape))),
	ownedEvent(ActivitySnapshot, req("messageId", idShape), req("activityType", textShape), req("content", openShape),
		opt("replace", boolShape)),
	ownedEvent(ActivityDelta, req("messageId", idShape), req("activityType", textShape), req("patch", patchShape)),

	ownedEvent(ReasoningStart, req("messageId", idShape)),
	ownedEvent(ReasoningEnd, req("messageId", idShape)),
	ownedEvent(ReasoningMessageStart, req("messageId", idShape), req("role", enumShape("reasoning"))),
	ownedEvent(ReasoningMessageContent, req("messageId", idShape), req("delta", textShape)),
	ownedEvent(ReasoningMessageEnd, req("messageId", idShape)),
	ownedEvent(ReasoningMessageChunk, opt("messageId", idShape), opt("delta", textShape)),
	ownedEvent(ReasoningEncryptedValue, req("subtype", subtypeShape), req("entityId", idShape),
		req("encryptedValue", textShape), opt("encryptedValueType", textShape)),

	runEvent(SubagentStarted, req("subagentRunId", idShape), req("name", textShape), opt("description", textShape),
		opt("parentSubagentRunId", idShape), opt("parentToolCallId", idShape), opt("parentMessageId", idShape)),
	runEvent(SubagentFinished, req("subagentRunId", idShape), opt("result", notNullShape), opt("outcome", subagentOutcomeShape)),
	runEvent(SubagentError, req("subagentRunId", idShape), req("message", textShape), opt("code", textShape)),

	ownedEvent(Raw, req("event", anyShape), opt("source", textShape)),
	ownedEvent(Custom, req("name", textShape), req("value", anyShape)),

	runEvent(ThinkingStart, opt("title", textShape)),
	runEvent(ThinkingEnd),
	runEvent(ThinkingTextStart),
	runEvent(ThinkingTextContent, req("delta", textShape)),
	runEvent(ThinkingTextEnd),
)

// runEvent is an event whose only shared fields are those of every event.
func runEvent(t EventType, fields ...shapeField) *shape {
	base := []shapeField{req("type", enumShape(string(t)))}
	all := append(plus(base, fields...), opt("timestamp", integerShape), opt("rawEvent", notNullShape), opt("metadata", openShape))
	return withStores(closedShape(string(t), all...))
}

// ownedEvent is an event that may belong to a subagent's work.
func ownedEvent(t EventType, fields ...shapeField) *shape {
	return runEvent(t, plus(fields, opt("subagentRunId", idShape))...)
}

func byName(events ...*shape) map[string]*shape {
	m := make(map[string]*shape, len(events))
	for _, e := range events {
		m[e.name] = e
	}
	return m
}

// withStores makes the shape's fields keep what the later stages read.
func withStores(s *shape) *shape {
	for i := range s.fields {
		f := &s.fields[i]
		f.store = eventStores[f.name]
		if f.shape == patchShape {
			f.store = eventStores["patch"]
		}
	}
	return s
}

// eventStores says where a member of an event or a run input goes. Members that are not listed stay in the text only.
var eventStores = map[string]func(*Event, Value, string){
	"threadId":            func(e *Event, _ Value, id string) { e.ThreadID = id },
	"runId":               func(e *Event, _ Value, id string) { e.RunID = id },
	"parentRunId":         func(e *Event, _ Value, id string) { e.ParentRunID = id },
	"messageId":           func(e *Event, _ Value, id string) { e.MessageID = id },
	"toolCallId":          func(e *Event, _ Value, id string) { e.ToolCallID = id },
	"parentMessageId":     func(e *Event, _ Value, id string) { e.ParentMessageID = id },
	"subagentRunId":       func(e *Event, _ Value, id string) { e.SubagentRunID = id },
	"parentSubagentRunId": func(e *Event, _ Value, id string) { e.ParentSubagentRunID = id },
	"entityId":            func(e *Event, _ Value, id string) { e.EntityID = id },

	"role":    func(e *Event, _ Value, word string) { e.Role = word },
	"subtype": func(e *Event, _ Value, word string) { e.Subtype = word },
	"replace": func(e *Event, v Value, _ string) { e.Keep = string(v) == "false" },

	"delta":              func(e *Event, v Value, _ string) { e.Delta = v },
	"name":               func(e *Event, v Value, _ string) { e.Name = v },
	"toolCallName":       func(e *Event, v Value, _ string) { e.ToolCallName = v },
	"stepName":           func(e *Event, v Value, _ string) { e.StepName = v },
	"activityType":       func(e *Event, v Value, _ string) { e.ActivityType = v },
	"protocolVersion":    func(e *Event, v Value, _ string) { e.ProtocolVersion = v },
	"encryptedValue":     func(e *Event, v Value, _ string) { e.EncryptedValue = v },
	"encryptedValueType": func(e *Event, v Value, _ string) { e.EncryptedValueType = v },
	"code":               func(e *Event, v Value, _ string) { e.Code = v },
	"message":            func(e *Event, v Value, _ string) { e.Message = v },

	"content":   func(e *Event, v Value, _ string) { e.Content = v },
	"snapshot":  func(e *Event, v Value, _ string) { e.Snapshot = v },
	"patch":     func(e *Event, v Value, _ string) { e.Patch = v },
	"messages":  func(e *Event, v Value, _ string) { e.Messages = v },
	"metadata":  func(e *Event, v Value, _ string) { e.Metadata = v },
	"rawEvent":  func(e *Event, v Value, _ string) { e.RawEvent = v },
	"result":    func(e *Event, v Value, _ string) { e.Result = v },
	"outcome":   func(e *Event, v Value, _ string) { e.Outcome = v },
	"usage":     func(e *Event, v Value, _ string) { e.Usage = v },
	"input":     func(e *Event, v Value, _ string) { e.Input = v },
	"timestamp": func(e *Event, v Value, _ string) { e.Timestamp = v },

	"tools":          func(e *Event, v Value, _ string) { e.Tools = v },
	"context":        func(e *Event, v Value, _ string) { e.Context = v },
	"forwardedProps": func(e *Event, v Value, _ string) { e.ForwardedProps = v },
	"state":          func(e *Event, v Value, _ string) { e.State = v },
	"resume":         func(e *Event, v Value, _ string) { e.Resume = v },
}

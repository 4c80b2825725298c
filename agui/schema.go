package agui

// The shapes of protocol version 1.1 (docs/spec/1.1/schema.json of the AG-UI repository), each name of which is explained
// there. Objects are closed unless they are openShape.

var (
	anyShape       = &shape{kind: kindAny, name: "any value"}
	notNullShape   = &shape{kind: kindNotNull, name: "any value but null"}
	openShape      = &shape{kind: kindOpen, name: "an object"}
	textShape      = &shape{kind: kindString, name: "a string"}
	maybeTextShape = &shape{kind: kindMaybe, name: "a string"}
	idShape        = &shape{kind: kindID, name: "a string"}
	boolShape      = &shape{kind: kindBool, name: "a boolean"}
	integerShape   = &shape{kind: kindInteger, name: "an integer between -(2^53-1) and 2^53-1"}
	countShape     = &shape{kind: kindCount, name: "an integer between 0 and 2^53-1"}
	patchShape     = arrayShape(&shape{kind: kindOperation})
	textPartsShape = &shape{kind: kindText, name: "a string or an array", element: partShape}

	textRoleShape = enumShape("developer", "system", "assistant", "user")
	subtypeShape  = &shape{kind: kindTag, name: "a string", words: []string{"message", "tool-call"}}
)

func enumShape(w ...string) *shape { return &shape{kind: kindEnum, name: oneOf(w), words: w} }

func oneOf(w []string) string {
	name := w[0]
	for _, word := range w[1:] {
		name += " or " + word
	}
	return name
}

func arrayShape(element *shape) *shape { return &shape{kind: kindArray, element: element} }

func closedShape(name string, fields ...shapeField) *shape {
	return &shape{kind: kindObject, name: name, fields: fields}
}

func req(name string, s *shape) shapeField { return shapeField{name: name, shape: s, required: true} }
func opt(name string, s *shape) shapeField { return shapeField{name: name, shape: s} }

// unionShape is a union of objects, by the value of the tag, which each option must carry. An option without further
// fields is nil.
func unionShape(tag string, options map[string][]shapeField) *shape {
	s := &shape{kind: kindUnion, tag: tag, options: map[string]*shape{}}
	for value, fields := range options {
		s.options[value] = closedShape(value, append([]shapeField{req(tag, enumShape(value))}, fields...)...)
	}
	return s
}

var (
	sourceShape = unionShape("type", map[string][]shapeField{
		"data": {req("value", textShape), req("mimeType", textShape)},
		"url":  {req("value", textShape), opt("mimeType", textShape)},
		"file": {req("value", textShape), opt("provider", textShape), opt("mimeType", textShape)},
	})
	partShape = withBinary(unionShape("type", map[string][]shapeField{
		"text":     {opt("id", textShape), req("text", textShape), opt("metadata", notNullShape)},
		"image":    mediaFields,
		"audio":    mediaFields,
		"video":    mediaFields,
		"document": mediaFields,
	}))
	mediaFields = []shapeField{opt("id", textShape), req("source", sourceShape), opt("metadata", notNullShape)}
)

func withBinary(parts *shape) *shape {
	parts.options["binary"] = binaryShape
	return parts
}

var (
	functionShape = closedShape("function", req("name", textShape), req("arguments", textShape))
	toolCallShape = closedShape("tool call", append([]shapeField{req("id", idShape), req("type", enumShape("function")),
		req("function", functionShape), opt("metadata", openShape)}, encryptedFields...)...)

	encryptedFields = []shapeField{opt("encryptedValue", textShape), opt("encryptedValueType", textShape)}
	// ownFields are in every message, commonFields in those that have an author.
	ownFields    = []shapeField{req("id", idShape), opt("subagentRunId", idShape), opt("metadata", openShape)}
	commonFields = append(append([]shapeField{opt("name", textShape)}, ownFields...), encryptedFields...)

	messageShape = unionShape("role", map[string][]shapeField{
		"developer": plus(commonFields, req("content", textShape)),
		"system":    plus(commonFields, req("content", textShape)),
		"assistant": plus(commonFields, opt("content", textShape), opt("toolCalls", arrayShape(toolCallShape))),
		"user":      plus(commonFields, req("content", textPartsShape)),
		"tool": plus(ownFields, append(encryptedFields[:2:2],
			req("content", textPartsShape), req("toolCallId", idShape), opt("error", textShape))...),
		"activity":  plus(ownFields, req("activityType", textShape), req("content", openShape)),
		"reasoning": plus(ownFields, append(encryptedFields[:2:2], req("content", textShape))...),
	})
)

// plus is base and more in a slice of its own.
func plus(base []shapeField, more ...shapeField) []shapeField {
	return append(base[:len(base):len(base)], more...)
}

var (
	toolShape = closedShape("tool", req("name", textShape), req("description", textShape), opt("parameters", notNullShape),
		opt("metadata", openShape))
	contextShape = closedShape("context", req("description", textShape), req("value", textShape))
	resumeShape  = closedShape("resume entry", req("interruptId", idShape), req("status", enumShape("resolved", "cancelled")),
		opt("payload", notNullShape), opt("metadata", openShape))

	inputFields = []shapeField{
		req("threadId", idShape), req("runId", idShape), opt("parentRunId", idShape),
		opt("protocolVersion", textShape), opt("state", notNullShape), opt("tools", arrayShape(toolShape)),
		opt("context", arrayShape(contextShape)), opt("forwardedProps", notNullShape), opt("resume", arrayShape(resumeShape)),
	}
	// echoedInputShape is the input in a RUN_STARTED, inputShape the one a run is started with.
	echoedInputShape = closedShape("run input", plus(inputFields, req("messages", arrayShape(messageShape)))...)
	inputShape       = withStores(closedShape("run input", plus(inputFields, opt("messages", arrayShape(messageShape)))...))
)

var (
	interruptShape = closedShape("interrupt", req("id", idShape), req("reason", textShape), opt("message", textShape),
		opt("toolCallId", idShape), opt("responseSchema", openShape), opt("expiresAt", textShape),
		opt("subagentRunId", idShape), opt("metadata", openShape))
	runOutcomeShape = unionShape("type", map[string][]shapeField{
		"success":   {opt("pendingToolCallIds", arrayShape(idShape))},
		"interrupt": {req("interrupts", &shape{kind: kindArray, element: interruptShape, atLeast: 1})},
		"cancelled": nil,
	})
	subagentOutcomeShape = unionShape("type", map[string][]shapeField{
		"success":   nil,
		"suspended": {opt("interruptIds", arrayShape(idShape))},
	})
	usageShape = arrayShape(closedShape("usage", opt("provider", textShape), opt("model", textShape), opt("inputTokens", countShape),
		opt("outputTokens", countShape), opt("totalTokens", countShape), opt("reasoningTokens", countShape),
		opt("cachedInputTokens", countShape), opt("cacheWriteInputTokens", countShape)))
)

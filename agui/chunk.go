package agui

// canonical is one event on its way into the log, with the flags of its entry.
type canonical struct {
	Event
	flags Flags
}

// expands reports whether an event stands for anything but itself: it is a chunk, or chunks are assembling something that
// it may close.
func (k *tracking) expands(ev *Event) bool {
	switch ev.Type {
	case TextMessageChunk, ReasoningMessageChunk, ToolCallChunk:
		return true
	}
	return !k.Lanes.IsZero()
}

// expand turns a received event into the canonical events it stands for (protocol page on streaming, chunks): the ends of
// the lanes that it closes, then the event itself, or what its chunk stands for. It does not change the lanes; noting
// the expanded events does (trackLanes).
func (t *Thread) expand(ev *Event) ([]canonical, *Violation) {
	k := &t.track
	switch ev.Type {
	case TextMessageChunk:
		return k.expandChunk(ev, itemText, ev.MessageID)
	case ReasoningMessageChunk:
		return k.expandChunk(ev, itemReasoning, ev.MessageID)
	case ToolCallChunk:
		return k.expandChunk(ev, itemCall, ev.ToolCallID)
	case Raw, ActivitySnapshot, ActivityDelta, ReasoningEncryptedValue, SubagentStarted:
		return []canonical{{Event: *ev}}, nil
	case RunStarted, RunFinished, RunError, MessagesSnapshot:
		return append(k.endLanes(), canonical{Event: *ev}), nil
	}
	if l := k.Lanes.of(ev.SubagentRunID); l != nil {
		return []canonical{l.end(), {Event: *ev}}, nil
	}
	return []canonical{{Event: *ev}}, nil
}

// endLanes are the ends of all lanes.
func (k *tracking) endLanes() []canonical {
	open := k.Lanes.inOrder()
	ends := make([]canonical, 0, len(open)+1)
	for _, l := range open {
		ends = append(ends, l.end())
	}
	return ends
}

// expandChunk expands a chunk of one kind; id is the identifier it names, if any.
func (k *tracking) expandChunk(ev *Event, kind itemKind, id string) ([]canonical, *Violation) {
	owner, v := k.resolveLane(ev, kind, id)
	if v != nil {
		return nil, v
	}
	held := k.Lanes.of(owner)
	if held != nil && held.Kind == kind && (id == "" || id == held.ID) {
		if v := held.agrees(ev); v != nil {
			return nil, v
		}
		return held.continued(ev, ev.Metadata != nil), nil
	}
	var expanded []canonical
	if held != nil {
		expanded = append(expanded, held.end())
	}
	opened, v := openLane(ev, kind, id, owner)
	if v != nil {
		return nil, v
	}
	expanded = append(expanded, opened.start(ev))
	return append(expanded, opened.continued(ev, false)...), nil
}

// resolveLane decides whose stream a chunk belongs to.
func (k *tracking) resolveLane(ev *Event, kind itemKind, id string) (string, *Violation) {
	tag := ev.SubagentRunID
	if id != "" {
		held := k.Lanes.holding(kind, id)
		if held == nil {
			return tag, nil
		}
		if tag != "" && tag != held.Owner {
			return "", &Violation{OwnerMismatch, "/subagentRunId", "the chunk is attributed to another subagent than its opener was"}
		}
		return held.Owner, nil
	}
	if tag != "" {
		return tag, nil
	}
	return k.soleLane(kind)
}

// soleLane is the lane that a chunk with neither id nor owner continues: the parent agent's if it has a stream of this
// kind, else the only one there is. Without any, the chunk would open one for the parent agent.
func (k *tracking) soleLane(kind itemKind) (string, *Violation) {
	owners := k.Lanes.ofKind(kind)
	if owners.has("") || len(owners) == 0 {
		return "", nil
	}
	if len(owners) > 1 {
		return "", &Violation{ChunkAmbiguous, "", "the chunk has neither id nor subagentRunId, and several streams are open"}
	}
	for owner := range owners {
		return owner, nil
	}
	return "", nil
}

// openLane makes the lane that a first chunk opens.
func openLane(ev *Event, kind itemKind, id, owner string) (*lane, *Violation) {
	if id == "" {
		path := "/messageId"
		if kind == itemCall {
			path = "/toolCallId"
		}
		return nil, &Violation{ChunkIncomplete, path, "the first chunk of an item needs its id"}
	}
	l := &lane{Owner: owner, Kind: kind, ID: id}
	switch kind {
	case itemCall:
		if ev.ToolCallName == nil {
			return nil, &Violation{ChunkIncomplete, "/toolCallName", "the first chunk of a tool call needs its name"}
		}
		l.Name, l.Parent = ev.ToolCallName, ev.ParentMessageID
	case itemText:
		l.Role, l.Name = ev.Role, ev.Name
		if l.Role == "" {
			l.Role = string(RoleAssistant)
		}
	}
	return l, nil
}

// agrees judges the opener's fields that a continuation repeats.
func (l *lane) agrees(ev *Event) *Violation {
	conflict := func(path string) *Violation {
		return &Violation{ChunkConflict, path, "the chunk repeats a field of its opener with another value"}
	}
	switch {
	case ev.Role != "" && ev.Role != l.Role:
		return conflict("/role")
	case ev.Name != nil && !equalStrings(ev.Name, l.Name):
		return conflict("/name")
	case ev.ToolCallName != nil && !equalStrings(ev.ToolCallName, l.Name):
		return conflict("/toolCallName")
	case ev.ParentMessageID != "" && ev.ParentMessageID != l.Parent:
		return conflict("/parentMessageId")
	}
	return nil
}

// start is the opener that a first chunk stands for.
func (l *lane) start(ev *Event) canonical {
	start := Event{SubagentRunID: l.Owner, Metadata: ev.Metadata}
	switch l.Kind {
	case itemText:
		start.Type, start.MessageID, start.Role, start.Name = TextMessageStart, l.ID, l.Role, l.Name
	case itemReasoning:
		start.Type, start.MessageID, start.Role = ReasoningMessageStart, l.ID, string(RoleReasoning)
	case itemCall:
		start.Type, start.ToolCallID, start.ToolCallName, start.ParentMessageID = ToolCallStart, l.ID, l.Name, l.Parent
	}
	return synthesise(start)
}

// continued is what a chunk adds to its item: nothing unless it carries a delta, a provider's event, or, where no opener
// carries them (always), metadata.
func (l *lane) continued(ev *Event, always bool) []canonical {
	if ev.Delta == nil && ev.RawEvent == nil && !always {
		return nil
	}
	content := Event{Delta: ev.Delta, Metadata: ev.Metadata, RawEvent: ev.RawEvent, Timestamp: ev.Timestamp, SubagentRunID: l.Owner}
	if content.Delta == nil {
		content.Delta = Value(`""`)
	}
	l.name(&content, TextMessageContent, ReasoningMessageContent, ToolCallArgs)
	return []canonical{synthesise(content)}
}

// end is what closes the lane's item.
func (l *lane) end() canonical {
	end := Event{SubagentRunID: l.Owner}
	l.name(&end, TextMessageEnd, ReasoningMessageEnd, ToolCallEnd)
	return synthesise(end)
}

// name sets an event's type, by the lane's kind, and its identifier.
func (l *lane) name(ev *Event, text, reasoning, call EventType) {
	switch l.Kind {
	case itemText:
		ev.Type, ev.MessageID = text, l.ID
	case itemReasoning:
		ev.Type, ev.MessageID = reasoning, l.ID
	case itemCall:
		ev.Type, ev.ToolCallID = call, l.ID
	}
}

// synthesise writes the text of an event made from a chunk.
func synthesise(ev Event) canonical {
	var w writer
	w.string("type", string(ev.Type))
	w.string("messageId", ev.MessageID)
	w.string("toolCallId", ev.ToolCallID)
	w.value("toolCallName", ev.ToolCallName)
	w.string("parentMessageId", ev.ParentMessageID)
	w.string("role", ev.Role)
	w.value("name", ev.Name)
	w.value("delta", ev.Delta)
	w.string("subagentRunId", ev.SubagentRunID)
	w.value("timestamp", ev.Timestamp)
	w.value("rawEvent", ev.RawEvent)
	w.value("metadata", ev.Metadata)
	ev.Text = w.object()
	return canonical{Event: ev, flags: FlagChunk}
}

// trackLanes follows in the lanes what an event expanded from a chunk opens or closes.
func (k *tracking) trackLanes(ev *Event) {
	opens := func(kind itemKind, id string, name Value) {
		k.Lanes.open(lane{Owner: ev.SubagentRunID, Kind: kind, ID: id, Role: ev.Role, Name: name, Parent: ev.ParentMessageID})
	}
	switch ev.Type {
	case TextMessageStart:
		opens(itemText, ev.MessageID, ev.Name)
	case ReasoningMessageStart:
		opens(itemReasoning, ev.MessageID, nil)
	case ToolCallStart:
		opens(itemCall, ev.ToolCallID, ev.ToolCallName)
	case TextMessageEnd, ReasoningMessageEnd, ToolCallEnd:
		k.Lanes.close(ev.SubagentRunID)
	}
}

package agui

// calls is the list of tool calls of an assistant message.
type calls []*toolCall

// toolCall is one tool call: an object whose function.arguments is a growing text.
type toolCall struct {
	id       string
	obj      *object
	function *object
}

// newToolCall makes a call without arguments.
func newToolCall(id string, name Value) *toolCall {
	c := &toolCall{id: id, obj: &object{}, function: &object{}}
	c.obj.set("id", quote(id))
	c.obj.set("type", quote("function"))
	c.obj.set("function", c.function)
	c.function.setValue("name", name)
	c.function.set("arguments", newText(nil))
	return c
}

// parseCalls reads a checked list of tool calls.
func parseCalls(list Value) *calls {
	read := &calls{}
	for raw := range objects(list) {
		obj := parseObject(raw)
		function, _ := obj.nested("function")
		*read = append(*read, &toolCall{id: unquote(obj.get("id")), obj: obj, function: function})
	}
	return read
}

// appendArguments appends a JSON string to the call's arguments and returns by how much it grew.
func (c *toolCall) appendArguments(delta Value) int {
	arguments := c.function.find("arguments")
	if arguments == nil {
		return c.function.set("arguments", newText(delta))
	}
	grown, ok := arguments.value.(*text)
	if !ok {
		grown = newText(arguments.value.AppendTo(nil))
		arguments.value = grown
	}
	return grown.append(delta)
}

// Size implements node.
func (l *calls) Size() int {
	size := 2 + max(0, len(*l)-1)
	for _, call := range *l {
		size += call.obj.Size()
	}
	return size
}

// AppendTo implements node.
func (l *calls) AppendTo(dst []byte) []byte {
	dst = append(dst, '[')
	for i, call := range *l {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = call.obj.AppendTo(dst)
	}
	return append(dst, ']')
}

// calls returns the message's tool calls, nil if it has none. It opens only messages that have some.
func (m *Message) calls() calls {
	if m.obj == nil && m.rawCalls == nil {
		return nil
	}
	obj, _ := m.open()
	if list := obj.find("toolCalls"); list != nil {
		return *list.value.(*calls)
	}
	return nil
}

// hasCalls reports whether the message has tool calls. It opens no message.
func (m *Message) hasCalls() bool { return m.rawCalls != nil || len(m.calls()) > 0 }

// callIDs returns the ids of the message's tool calls, which the caller must not change. It opens no message.
func (m *Message) callIDs() (ids []string) {
	if m.rawCalls != nil {
		if m.rawIDs == nil {
			for call := range objects(m.rawCalls) {
				m.rawIDs = append(m.rawIDs, unquote(memberOf(call, "id")))
			}
		}
		return m.rawIDs
	}
	for _, call := range m.calls() {
		ids = append(ids, call.id)
	}
	return ids
}

// addCall appends a call and returns by how much the message grew.
func (m *Message) addCall(call *toolCall) int {
	obj, grown := m.open()
	list := obj.find("toolCalls")
	if list == nil {
		return grown + obj.set("toolCalls", &calls{call})
	}
	held := list.value.(*calls)
	*held = append(*held, call)
	added := call.obj.Size()
	if len(*held) > 1 {
		added++ // the comma
	}
	return grown + added
}

package agui

// reconcile is MESSAGES_SNAPSHOT (protocol page on state): a message held keeps its place and takes the
// snapshot's content; one never seen is appended in the snapshot's order; one absent is dropped, except activity and
// reasoning messages, each unless the snapshot carries any of that role.
func (t *Thread) reconcile(ev *Event) *Warning {
	snapshot := t.readMessages(ev.Messages)
	carried := rolesOf(snapshot)
	byID := make(map[string]*Message, len(snapshot))
	for _, m := range snapshot {
		byID[m.ID] = m
		t.track.seedOwners(m, true)
	}
	t.msgs.keepOnly(func(m *Message) bool {
		return byID[m.ID] != nil || m.outside(carried)
	})
	for _, m := range snapshot {
		if byID[m.ID] != m {
			continue // the snapshot names the id again later
		}
		switch held := t.msgs.byID[m.ID]; {
		case held == nil:
			t.msgs.append(m.detached())
		case !held.equals(m): // most of a snapshot commonly restates what is held
			t.msgs.replace(held, m.detached())
		}
	}
	return nil
}

// outside reports whether a snapshot that carries messages of the given roles, but not this one, leaves it as it is.
func (m *Message) outside(carried set[Role]) bool {
	return (m.Role == RoleActivity || m.Role == RoleReasoning) && !carried.has(m.Role)
}

func rolesOf(list []*Message) set[Role] {
	roles := set[Role]{}
	for _, m := range list {
		roles.add(m.Role)
	}
	return roles
}

// sizeAfter is at least the size of the thread after a MESSAGES_SNAPSHOT. Only near the limit the snapshot is read for it.
func (t *Thread) sizeAfter(ev *Event) int {
	size := len(ev.Text) + t.stateSize()
	if most := size + t.msgs.sizeOutside(nil); most <= t.lim.Context {
		return most
	}
	return size + t.msgs.sizeOutside(rolesOf(t.readMessages(ev.Messages)))
}

// readMessages reads a checked list of messages. The list of an entry of an imported log is known to be JSON, and no more.
func (t *Thread) readMessages(list Value) []*Message {
	var read []*Message
	for raw := range objects(list) {
		read = append(read, parseMessage(raw))
	}
	return read
}

// addMessages adds those messages of an input whose ids are not held, and returns the texts of these. It copies them: an
// input that repeats the whole conversation would otherwise stay in memory for the sake of its last message.
func (t *Thread) addMessages(list Value) []Value {
	var added []Value
	for _, m := range t.readMessages(list) {
		if t.msgs.byID[m.ID] != nil {
			continue
		}
		m = m.detached()
		added = append(added, m.raw)
		t.msgs.append(m)
	}
	return added
}

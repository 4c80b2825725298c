package agui

// snapshotActivity is ACTIVITY_SNAPSHOT: it creates the activity message, or replaces content and type and re-mints the
// attribution of the one held. With "replace": false a message that is held stays as it is. The metadata merges in any
// case.
func (t *Thread) snapshotActivity(ev *Event) *Warning {
	held := t.msgs.byID[ev.MessageID]
	switch {
	case held == nil:
		m := activityMessage(ev)
		m.obj.merge("metadata", ev.Metadata)
		t.msgs.append(m)
		return nil
	case held.Role == RoleActivity:
		if !ev.Keep {
			t.replaceActivity(held, ev)
		}
		t.mergeMetadata(held, ev.Metadata)
		return nil
	case ev.Keep:
		return conflictWith(held)
	}
	m := activityMessage(ev)
	m.obj.merge("metadata", ev.Metadata)
	t.msgs.replace(held, m)
	return nil
}

func activityMessage(ev *Event) *Message {
	m := newMessage(ev.MessageID, RoleActivity)
	m.obj.setValue("activityType", ev.ActivityType)
	m.obj.setValue("content", ev.Content)
	m.obj.setString("subagentRunId", ev.SubagentRunID)
	return m
}

func (t *Thread) replaceActivity(m *Message, ev *Event) {
	obj, grown := m.open()
	m.draft = nil
	grown += obj.setValue("activityType", ev.ActivityType) + obj.setValue("content", ev.Content)
	if ev.SubagentRunID == "" {
		grown += obj.remove("subagentRunId")
	}
	t.msgs.grew(m, grown+obj.setString("subagentRunId", ev.SubagentRunID))
}

// patchActivity is ACTIVITY_DELTA: it patches the content and sets the type. The metadata merges even if the patch does
// not apply.
func (t *Thread) patchActivity(ev *Event, inert bool) *Warning {
	m := t.msgs.byID[ev.MessageID]
	if m == nil {
		return &Warning{Code: TargetUnknown, Path: "/messageId", Detail: "the thread does not hold the activity"}
	}
	if m.Role != RoleActivity {
		return conflictWith(m)
	}
	t.mergeMetadata(m, ev.Metadata)
	if inert {
		return nil
	}
	grown, err := m.patchContent(ev.Patch, t.docLimits())
	if err != nil {
		return patchWarning(err, "/patch")
	}
	t.msgs.grew(m, grown+m.obj.setValue("activityType", ev.ActivityType))
	return nil
}

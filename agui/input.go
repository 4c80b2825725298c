package agui

// DecodeInput reads a run input (RunAgentInput) as Decode reads an event. The event it returns has no type and holds the
// input's members. The member "messages" may be absent, unlike in the input that a RUN_STARTED echoes.
func DecodeInput(text []byte, lim Limits) (Event, []Warning, *Violation) {
	if v := checkText(text, lim); v != nil {
		return Event{}, nil, v
	}
	d := newDecoder()
	defer d.release()
	d.begin(text, lim)
	d.about = inputShape.name
	warnings, v := d.decode(inputShape)
	return d.event, warnings, v
}

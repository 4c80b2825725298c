package agui

// End closes the thread's last run on somebody's wish, whose reason is recorded. A run that is open is truncated. One that
// left interrupts open loses them: the next run need not answer them, and the tool calls suspended with them become calls
// that nobody answers. The run's stream can append nothing more either way. Where there is nothing to end, nothing is
// recorded.
func (t *Thread) End(reason string) Applied {
	switch {
	case t.Running():
		mark := Mark{Type: MarkRunTruncated, RunID: t.track.RunID, Code: RunEndedByRequest, Detail: reason}
		return t.closeRun(EndTruncated, 0, mark, nil)
	case len(t.track.Interrupts) > 0:
		return t.abandonInterrupts(reason)
	}
	return Applied{}
}

func (t *Thread) abandonInterrupts(reason string) Applied {
	applied := Applied{RunID: t.track.RunID}
	mark := Mark{Type: MarkInterruptsAbandoned, RunID: t.track.RunID, Code: RunEndedByRequest, Detail: reason}
	t.record(&applied, &Entry{Kind: KindMark, Payload: mark.encode()})
	t.foldMark(&mark)
	return applied
}

// abandon forgets what an interrupted run waits for.
func (t *tracking) abandon() {
	t.Interrupts, t.Suspended = nil, nil
	t.Phase = phaseClosed
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// conclude shows what the conversation came to and checks it.
func (d *demo) conclude(ctx context.Context, runs []scriptedRun) error {
	messages, err := d.messages(ctx)
	if err != nil {
		return err
	}
	d.out.messages(messages)
	input, err := readContext(ctx, d.client, d.thread)
	if err != nil {
		return err
	}
	shown, err := layoutJSON(input, lineWidth-2)
	if err != nil {
		return err
	}
	d.out.printf("\n%s\n", d.out.style(bold, "The RunAgentInput of the next run"))
	for _, line := range shown {
		d.out.printf("  %s\n", line)
	}
	entries, err := readLog(ctx, d.client, d.thread)
	if err != nil {
		return err
	}
	return errors.Join(d.verdicts(runs, entries, messages, input), d.past(ctx))
}

// messages reads the thread's messages, which fit one page.
func (d *demo) messages(ctx context.Context) ([]shownMessage, error) {
	resp, err := d.client.ListMessages(ctx, &threadsvcv1.ListMessagesRequest{Thread: d.thread})
	if err != nil {
		return nil, err
	}
	all := make([]shownMessage, len(resp.GetMessages()))
	for i, text := range resp.GetMessages() {
		if err := json.Unmarshal(text, &all[i]); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return all, nil
}

// verdicts prints every check; its error is those that failed.
func (d *demo) verdicts(runs []scriptedRun, entries []*threadsvcv1.LogEntry, messages []shownMessage, input []byte) error {
	sent := 0
	for i := range runs {
		sent += len(runs[i].events)
	}
	d.out.printf("\n%s\n", d.out.style(bold, "Checked"))
	var errs []error
	verdict := func(name string, err error, format string, args ...any) {
		d.out.verdict(name, fmt.Sprintf(format, args...), err)
		errs = append(errs, err)
	}
	verdict("log", checkLog(runs, entries), "%d entries without a gap; each of the %d events sent is there, none twice", len(entries), sent)
	verdict("crash", d.crash.check(), "the %d acknowledged events survived SIGKILL; the %d duplicates changed nothing",
		d.crash.acked, d.crash.durable-d.crash.acked)
	verdict("messages", checkMessages(messages), "%d, in order; the text streamed across the crash is whole", len(messages))
	verdict("state", checkState(input), "byte for byte what four runs made it, 448.50 and 9007199254740993 included")
	return errors.Join(errs...)
}

// checkLog is whether the log has the versions 1, 2, 3 ..., and every offset of every run, in order.
func checkLog(runs []scriptedRun, entries []*threadsvcv1.LogEntry) error {
	next := map[string]uint64{}
	for i, entry := range entries {
		if entry.GetVersion() != uint64(i)+1 {
			return claimf("log entry %d has version %d", i, entry.GetVersion())
		}
		if entry.GetKind() == threadsvcv1.EntryKind_ENTRY_KIND_INPUT {
			continue
		}
		run, offset := entry.GetRunId(), entry.GetOffset()
		switch {
		case offset == next[run]:
			next[run]++
		case offset+1 != next[run]: // one event can make several entries
			return claimf("version %d has event %d of %s, want %d", entry.GetVersion(), offset, run, next[run])
		}
	}
	for i := range runs {
		if got := next[runs[i].id]; got != uint64(len(runs[i].events)) {
			return claimf("the log has %d events of %s, %d were sent", got, runs[i].id, len(runs[i].events))
		}
	}
	return nil
}

// checkMessages is whether the thread has the messages of the script, and the text that was streamed while the server
// was killed.
func checkMessages(messages []shownMessage) error {
	var ids []string
	for i := range messages {
		m := &messages[i]
		ids = append(ids, m.ID)
		if m.ID == chosenID && m.text() != choseText {
			return claimf("message %s is %q", m.ID, m.text())
		}
	}
	if got := strings.Join(ids, " "); got != finalMessages {
		return claimf("the messages are %s, want %s", got, finalMessages)
	}
	return nil
}

// checkState is whether the next run gets the state that the script comes to, with the numbers as they were written.
func checkState(input []byte) error {
	var in struct{ State json.RawMessage }
	if err := json.Unmarshal(input, &in); err != nil {
		return fmt.Errorf("the RunAgentInput: %w", err)
	}
	if string(in.State) != finalState {
		return claimf("the state is %s, want %s", in.State, finalState)
	}
	return nil
}

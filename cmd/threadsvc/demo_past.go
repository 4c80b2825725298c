package main

import (
	"context"
	"errors"
	"io"
	"strings"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// watchedValue is the value of the state whose history the demo shows, and watchedHistory what it must be, newest first: in
// which run, from what, to what.
const (
	watchedValue   = "/status"
	watchedHistory = `run-4 "held">"booked" run-2 "offered">"held" run-1 "searching">"offered" run-1 ->"searching"`
)

// pastChanges is what must have become of the state between the ends of the first and the second run.
const pastChanges = `/status "offered">"held" /trip/bags >1 /offers/0/price 412.50>448.50 ` +
	`/offers/1 {"flight":"LH 173","price":388.00,"stops":1}> /hold >{"fareId":9007199254740993,"minutes":30}`

// past shows what was: the history of a value, the difference of two moments, and that the thread is what its log says.
func (d *demo) past(ctx context.Context) error {
	history := threadsvcv1.NewHistoryServiceClient(d.conn)
	screen := &screen{w: d.out.w, colour: d.out.colour, width: lineWidth}
	return errors.Join(d.pastOfValue(ctx, history, screen), d.pastDiff(ctx, history, screen), d.pastVerified(ctx, history))
}

// pastOfValue shows who changed a value, when, in which run, and from what to what.
func (d *demo) pastOfValue(ctx context.Context, history threadsvcv1.HistoryServiceClient, screen *screen) error {
	resp, err := history.ListStateChanges(ctx, &threadsvcv1.ListStateChangesRequest{Thread: d.thread, Pointer: watchedValue})
	if err != nil {
		return err
	}
	d.out.printf("\n%s  threadsvc thread changes %s %s\n", d.out.style(bold, "Who changed it?"), demoThread, watchedValue)
	rows := [][]cell{heading("  VERSION", "TIME", "RUN", "BY", "FROM", "TO")}
	var all []string
	for _, change := range resp.GetChanges() {
		before, after := viewValue(change.GetBefore()).text(20), viewValue(change.GetAfter()).text(20)
		row := append(sourceCells(viewSource(change.GetSource())), cell{red, before}, cell{green, after})
		row[0].text = "  " + row[0].text
		rows = append(rows, row)
		all = append(all, change.GetSource().GetRunId()+" "+before+">"+after)
	}
	screen.table(rows)
	if got := strings.Join(all, " "); got != watchedHistory {
		err = claimf("the history of %s is %s, want %s", watchedValue, got, watchedHistory)
	}
	d.out.verdict("history", "every change of it, with its run, by the log alone", err)
	return err
}

// pastDiff shows what the second run changed.
func (d *demo) pastDiff(ctx context.Context, history threadsvcv1.HistoryServiceClient, screen *screen) error {
	end := func(run string) *threadsvcv1.Moment {
		return &threadsvcv1.Moment{At: &threadsvcv1.Moment_RunId{RunId: run}}
	}
	view, err := readDiff(ctx, history, &threadsvcv1.DiffContextRequest{Thread: d.thread, From: end("run-1"), To: end("run-2")})
	if err != nil {
		return err
	}
	call := &threadCall{threadFlags: &threadFlags{tenant: demoTenant}, history: history, out: screen}
	before, err := call.state(ctx, demoThread, end("run-1"), "/")
	if err != nil {
		return err
	}
	after, err := call.state(ctx, demoThread, end("run-2"), "/")
	if err != nil {
		return err
	}
	d.out.printf("\n%s  threadsvc thread diff %s run:run-1 run:run-2\n", d.out.style(bold, "What did run 2 do?"), demoThread)
	screen.diff(view, before, after)
	var all []string
	for _, v := range compareValues("", before, after, nil) {
		all = append(all, v.path+" "+string(v.before)+">"+string(v.after))
	}
	if got := strings.Join(all, " "); got != pastChanges {
		err = claimf("run-2 changed %s, want %s", got, pastChanges)
	}
	d.out.verdict("diff", "two moments of the past, compared", err)
	return err
}

// pastVerified has the thread recomputed from its log, and compared.
func (d *demo) pastVerified(ctx context.Context, history threadsvcv1.HistoryServiceClient) error {
	stream, err := history.VerifyThread(ctx, &threadsvcv1.VerifyThreadRequest{Thread: d.thread})
	if err != nil {
		return err
	}
	var result *threadsvcv1.VerifyResult
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if finding := msg.GetFinding(); finding != nil {
			d.out.row("finding", "%s", visible(finding.GetDetail()))
		}
		result = msg.GetResult()
	}
	err = checkVerified(result)
	d.out.printf("\n%s\n", d.out.style(bold, "Is it what its log says?"))
	d.out.verdict("verify", "recomputed from its log, all of it agrees", err)
	return err
}

// checkVerified is whether a verification came to its end and found nothing.
func checkVerified(result *threadsvcv1.VerifyResult) error {
	if result == nil || result.GetVersion() == 0 || result.GetFindings() > 0 {
		return claimf("the verification ended with %v", result)
	}
	return nil
}

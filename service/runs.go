package service

import (
	"bytes"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/store"
)

// endings maps how a run ended to the status that is stored.
var endings = map[agui.Ending]store.RunStatus{
	agui.EndFinished:    store.RunFinished,
	agui.EndInterrupted: store.RunInterrupted,
	agui.EndCancelled:   store.RunCancelled,
	agui.EndFailed:      store.RunFailed,
	agui.EndTruncated:   store.RunTruncated,
}

// gatherRuns follows in the rows of runs what was applied. first is the version of its first entry.
func (l *live) gatherRuns(p *pending, a *agui.Applied, first, firstOffset uint64) {
	if a.Opened != nil {
		l.openRun(p, &store.Run{
			RunID: a.Opened.RunID, ParentRunID: a.Opened.ParentRunID, FirstVersion: first, FirstOffset: firstOffset,
		})
	}
	if a.Ended != nil && l.run != nil && l.run.RunID == a.Ended.RunID {
		l.endRun(p, a.Ended)
	}
}

// openRun makes a run the thread's active one.
func (l *live) openRun(p *pending, run *store.Run) {
	l.head.Runs++
	run.Ordinal, run.StreamID, run.Fence, run.Status = l.head.Runs, l.head.StreamID, l.head.Fence, store.RunActive
	l.run = run
	l.head.ActiveRun = run.RunID
	p.commit.RunStarted = true
	p.writeRun(run, true)
}

// endRun closes the active run.
func (l *live) endRun(p *pending, ended *agui.RunEnded) {
	run := l.run
	run.Status = endings[ended.Ending]
	run.LastVersion, run.NextOffset = l.head.Version, l.head.NextOffset
	// The row outlives the event, and must not keep the message in memory that it came in.
	run.ProtocolVersion, run.Outcome = bytes.Clone(ended.ProtocolVersion), bytes.Clone(ended.Outcome)
	run.Result, run.Usage, run.Error = bytes.Clone(ended.Result), bytes.Clone(ended.Usage), bytes.Clone(ended.Error)
	l.head.ActiveRun = ""
	p.wantsFold = true
	p.writeRun(run, false)
}

// countWarnings counts warnings of the active run in its row.
func (l *live) countWarnings(p *pending, runID string, n int) {
	if n > 0 && l.run != nil && l.run.RunID == runID {
		l.run.Warnings += int64(n)
		p.writeRun(l.run, false)
	}
}

// writeRun notes that the row of a run is to be written.
func (p *pending) writeRun(run *store.Run, opened bool) {
	if p.runs == nil {
		p.runs, p.opened = map[string]*store.Run{}, map[string]bool{}
	}
	if _, noted := p.runs[run.RunID]; !noted {
		p.order = append(p.order, run.RunID)
		p.opened[run.RunID] = opened
	}
	p.runs[run.RunID] = run
}

package main

import (
	"fmt"
	"strconv"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// leafCells are the columns of what gave a leaf its value. Of one given before the cut of a pruned thread only the latest
// version that it can be is known.
func leafCells(l *leafView) []cell {
	if l.Source == nil && l.PrunedVersion > 0 {
		return []cell{styled(dim, "≤%d", l.PrunedVersion), {dim, "-"}, {dim, "-"}, {dim, "(pruned)"}}
	}
	return sourceCells(l.Source)
}

// prunedChanges ends a list of changes that goes back to the cut of a pruned thread; 0 is one that is complete.
func (c *threadCall) prunedChanges(version uint64) error {
	if version == 0 {
		return c.out.err
	}
	if c.json {
		return c.out.json(changeView{PrunedVersion: version})
	}
	c.out.line(styled(dim, "The log up to version %d was pruned: changes up to there are not known.", version))
	return c.out.err
}

// logBegin is the version of the first entry of a thread's log. If it is not 1, standard error says so, since a log that
// begins later looks like one that is whole.
func (c *threadCall) logBegin(t *threadsvcv1.Thread) uint64 {
	if first := t.GetFirstVersion(); first > 0 {
		fmt.Fprintf(c.command.ErrOrStderr(), "The log up to version %d was pruned: it begins with version %d.\n", first, first+1)
	}
	return t.GetFirstVersion() + 1
}

// prunedAdvice says what is left of a thread: the first version is a moment, but its entry is gone.
func prunedAdvice(first string) string {
	advice := fmt.Sprintf("What came before was pruned: version %s is the first moment that can be read", first)
	if version, err := strconv.ParseUint(first, 10, 64); err == nil {
		advice += fmt.Sprintf(", %d the first entry of the log", version+1)
	}
	return advice + "."
}

package agui_test

import (
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

const (
	lostDelta = `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/none"}]}`
	keptDelta = `{"type":"STATE_DELTA","delta":[{"op":"add","path":"/kept","value":1}]}`
	snapshot  = `{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}`
)

// What the state lacks begins with the first change that was lost, and ends when the state is set as a whole.
func TestStateResync(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events []string
		want   agui.Resync // zero: nothing
	}{
		"nothing":                {nil, agui.Resync{}},
		"a delta that applies":   {[]string{keptDelta}, agui.Resync{}},
		"one that does not":      {[]string{keptDelta, lostDelta}, agui.Resync{Since: 3, Lost: 1}},
		"several":                {[]string{lostDelta, keptDelta, lostDelta}, agui.Resync{Since: 2, Lost: 2}},
		"a snapshot after it":    {[]string{lostDelta, snapshot}, agui.Resync{}},
		"a snapshot before it":   {[]string{snapshot, lostDelta}, agui.Resync{Since: 3, Lost: 1}},
		"the same state again":   {[]string{snapshot, lostDelta, snapshot}, agui.Resync{}},
		"an activity's is none":  {[]string{`{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"a","content":{}}`, `{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"a","patch":[{"op":"remove","path":"/none"}]}`}, agui.Resync{}},
		"an empty delta is none": {[]string{`{"type":"STATE_DELTA","delta":[]}`}, agui.Resync{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			th := started(t)
			mustApply(t, th, tc.events...)
			again, err := agui.Restore("t", foldOf(th), th.Hash(), agui.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			replayed := replay(t, "t", logOf(t, append([]string{runStarted}, tc.events...)...), agui.DefaultLimits())
			for how, th := range map[string]*agui.Thread{"live": th, "restored": again, "replayed": replayed} {
				if got := th.StateResync(); (got == nil) != (tc.want == agui.Resync{}) || got != nil && *got != tc.want {
					t.Errorf("%s: %+v, want %+v", how, got, tc.want)
				}
			}
		})
	}
}

// An input whose state is an earlier one brings along what that one lacked; one that an application made up cannot.
func TestInputsWithAnEarlierState(t *testing.T) {
	t.Parallel()
	earlier := &agui.Resync{Since: 7, Lost: 3}
	for name, tc := range map[string]struct {
		input string
		lacks agui.Value
		want  bool
	}{
		"an earlier state":           {`{"threadId":"t","runId":"r2","state":{"a":1}}`, earlier.Text(), true},
		"a whole one":                {`{"threadId":"t","runId":"r2","state":{"a":1}}`, nil, false},
		"nothing lost":               {`{"threadId":"t","runId":"r2","state":{"a":1}}`, agui.Value(`{"since":1,"lost":0}`), false},
		"a state that says it lacks": {`{"threadId":"t","runId":"r2","state":{"stateLacks":{"since":7,"lost":3}}}`, nil, false},
	} {
		th := agui.NewThread("t", agui.DefaultLimits())
		mustApply(t, th, runStarted, lostDelta, runFinished)
		in, _, v := agui.DecodeInput([]byte(tc.input), agui.DefaultLimits())
		if v != nil {
			t.Fatal(v)
		}
		in.StateLacks = tc.lacks
		a, err := th.Begin(agui.Start{Input: in, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		replayed := replay(t, "t", append(logOf(t, runStarted, lostDelta, runFinished), a.Stored...), agui.DefaultLimits())
		for how, th := range map[string]*agui.Thread{"live": th, "replayed": replayed} {
			if got := th.StateResync(); (got != nil) != tc.want || got != nil && *got != *earlier {
				t.Errorf("%s, %s: %+v", name, how, got)
			}
		}
		if wrong := differ(th, replayed); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
	}
	if (*agui.Resync)(nil).Text() != nil {
		t.Error("nothing has a text")
	}
}

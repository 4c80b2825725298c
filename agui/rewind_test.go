package agui_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/aguitest"
)

// A rewind makes the thread what it was, whether it is live, replayed or restored from a fold, and the thread goes on from
// there.
func TestRewindRestoresTheFold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newTrio(t, agui.DefaultLimits())
		folds := []agui.Fold{m.threads[0].Fold()}
		for _, step := range aguitest.Stream(t, aguitest.Options{}) {
			m.step(step)
			th := m.threads[0]
			folds = append(folds, th.Fold())
			if th.Running() || rapid.IntRange(0, 9).Draw(t, "rewind") > 0 {
				continue
			}
			m.rewind(folds[rapid.IntRange(0, len(folds)-1).Draw(t, "to")])
		}
	})
}

func (m *trio) rewind(to agui.Fold) {
	before := m.threads[0].Version()
	undone := len(m.threads[0].Undone())
	m.each(func(th *agui.Thread) agui.Applied {
		a, err := th.Rewind(to)
		if err != nil {
			m.t.Fatal(err)
		}
		return a
	})
	m.check()
	m.over = true // the stream of the last run is over
	th := m.threads[0]
	now := th.Fold()
	if !bytes.Equal(now.State, to.State) || len(now.Messages) != len(to.Messages) || th.Version() != before+1 || th.Running() || !th.Closed() {
		m.t.Fatalf("rewound to %+v, and is %+v", to, now)
	}
	for i := range now.Messages {
		if !bytes.Equal(now.Messages[i].Body, to.Messages[i].Body) {
			m.t.Fatalf("message %d is %s, and was %s", i, now.Messages[i].Body, to.Messages[i].Body)
		}
	}
	ranges := th.Undone()
	if to.Version < before {
		undone++
	}
	if len(ranges) != undone || to.Version < before && ranges[undone-1] != (agui.Undone{FirstVersion: to.Version + 1, LastVersion: before}) {
		m.t.Fatalf("undone %v", ranges)
	}
}

// A fork is what its source was, without its past.
func TestForkIsWhatItsSourceWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newTrio(t, agui.DefaultLimits())
		for _, step := range aguitest.Stream(t, aguitest.Options{}) {
			m.step(step)
		}
		source := m.threads[0]
		fork := agui.NewThread("fork", agui.DefaultLimits())
		origin := agui.Origin{ThreadID: "t", Version: source.Version(), LogHash: []byte{1}}
		a, err := fork.Fork(origin, source.Fold())
		if err != nil {
			t.Fatal(err)
		}
		again := replay(t, "fork", a.Stored, agui.DefaultLimits())
		if diff := differ(fork, again); diff != "" {
			t.Fatal(diff)
		}
		got, want := fork.Fold(), source.Fold()
		if fork.Version() != 1 || !bytes.Equal(got.State, want.State) || len(got.Messages) != len(want.Messages) || fork.Undone() != nil {
			t.Fatalf("the fork of %+v is %+v", want, got)
		}
		if o := fork.Origin(); o == nil || o.Version != origin.Version || o.ThreadID != "t" {
			t.Fatalf("origin %+v", o)
		}
		if !source.Running() && !bytes.Equal(idless(fork), idless(source)) {
			t.Fatalf("the run input of the fork is\n%s\nthat of the source\n%s", idless(fork), idless(source))
		}
	})
}

// idless is a run input without the thread's id.
func idless(th *agui.Thread) []byte {
	_, rest, _ := bytes.Cut(th.RunInput(false).Text, []byte(`"protocolVersion"`))
	return rest
}

// A mark that restores nothing that could be folded leaves the thread readable.
func TestRestoringMarksThatAreBroken(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"type":"REWOUND","toVersion":0,"messages":[{"id":"a","role":"user"},{"id":"a","role":"user"}]}`,
		`{"type":"REWOUND","toVersion":0,"messages":[{"role":"user"}]}`, `{"type":"REWOUND","toVersion":0,"messages":[7]}`,
		`{"type":"REWOUND","toVersion":0,"tracking":7}`, `{"type":"FORKED","origin":7}`, `{"type":"FORKED","messages":{}}`,
	} {
		th := started(t)
		mustApply(t, th, runFinished)
		entry := agui.Entry{Kind: agui.KindMark, Payload: []byte(payload)}
		if err := th.Replay(&entry, entry.Append(nil)); err == nil {
			t.Errorf("%s was taken", payload)
		}
		if th.Version() != 3 || string(th.State(nil)) != "{}" {
			t.Errorf("%s: version %d, state %s", payload, th.Version(), th.State(nil))
		}
	}
}

package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var errFailed = errors.New("it failed")

// failures counts the failures until there is to be no other attempt, and how long that takes.
func failures(ctx context.Context, p *pauses) (n int, took time.Duration, _ error) {
	started := time.Now()
	for {
		n++
		if err := p.after(ctx, errFailed); err != nil {
			return n, time.Since(started), err
		}
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pauses{limit: time.Hour}
		n, took, err := failures(t.Context(), &p)
		if !errors.Is(err, errFailed) || took < time.Hour || took > time.Hour+maxPause {
			t.Errorf("gave up after %v with %v", took, err)
		}
		if n < 6500 || n > 8000 { // half a second apart on average
			t.Errorf("%d attempts", n)
		}
		p.reset()
		if _, took, _ = failures(t.Context(), &p); took < time.Hour {
			t.Errorf("after a success it gave up within %v", took)
		}
		time.Sleep(2 * settled) // a connection that nothing was heard of holds
		if _, took, _ = failures(t.Context(), &p); took < time.Hour {
			t.Errorf("after a quiet time it gave up within %v", took)
		}
	})
}

func TestPausesEndWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := pauses{limit: time.Hour}
		if _, took, err := failures(ctx, &p); took != time.Minute || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended after %v with %v", took, err)
		}
	})
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for target, want := range map[string][]string{
		"a:1,b:2":          {"a:1 a", "b:2 b"},
		"a:1, [::1]:2":     {"a:1 a", "[::1]:2 ::1"},
		"a,b":              {"a a", "b b"},
		"a:1":              nil,
		"dns:///a:1":       nil,
		"ipv4:1.2.3.4:5,6": nil,
		"x:///a:1,b:2":     nil,
	} {
		var got []string
		if isList(target) {
			for _, a := range addressesOf(target) {
				got = append(got, a.Addr+" "+a.ServerName)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	if _, err := Dial("a:1,b:2", Config{}); err == nil {
		t.Error("a client without transport credentials")
	}
}

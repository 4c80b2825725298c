package store_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/threadsvc/threadsvc/store"
)

// When each entry of a merged segment was committed is kept to the microsecond, as the database has it.
func TestTimesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		began := time.UnixMicro(rapid.Int64Range(0, 1<<50).Draw(t, "began")).UTC()
		var spans []store.TimeSpan
		last, at := first-1, began
		for range rapid.IntRange(0, 300).Draw(t, "spans") {
			last += rapid.SampledFrom([]uint64{1, 1, 1, 2, 300}).Draw(t, "versions")
			at = at.Add(time.Duration(rapid.Int64Range(0, 1<<35).Draw(t, "gap")) * time.Microsecond)
			spans = append(spans, store.TimeSpan{LastVersion: last, CommittedAt: at})
		}
		text := store.EncodeTimes(spans, first, began)
		if got := store.DecodeTimes(text, first, began); !slices.Equal(got, spans) {
			t.Fatalf("%v\nbecame\n%v", spans, got)
		}
		if len(text) > 0 {
			cut := rapid.IntRange(0, len(text)-1).Draw(t, "cut")
			if got := store.DecodeTimes(text[:cut], first, began); len(got) >= len(spans) {
				t.Fatalf("%d of %d bytes: %v", cut, len(text), got)
			}
		}
	})
}

// A clock that is set back makes times equal that were not, and changes none after it has caught up.
func TestTimesOfAClockSetBack(t *testing.T) {
	t.Parallel()
	began := time.UnixMicro(1_000_000).UTC()
	var spans, want []store.TimeSpan
	for i, ms := range []int64{-5, 0, 7, 3, 4, 7, 9, 8, 10} {
		span := store.TimeSpan{LastVersion: uint64(i + 1), CommittedAt: began.Add(time.Duration(ms) * time.Millisecond)}
		spans = append(spans, span)
		for _, earlier := range append(spans, store.TimeSpan{CommittedAt: began}) {
			if earlier.CommittedAt.After(span.CommittedAt) {
				span.CommittedAt = earlier.CommittedAt
			}
		}
		want = append(want, span)
	}
	if got := store.DecodeTimes(store.EncodeTimes(spans, 1, began), 1, began); !slices.Equal(got, want) {
		t.Errorf("%v\nbecame\n%v, want\n%v", spans, got, want)
	}
}

// A run that came event by event, about every ten milliseconds, takes less than two bytes for the time of each.
func TestTimesAreShort(t *testing.T) {
	t.Parallel()
	began := time.UnixMicro(1_000_000).UTC()
	var spans []store.TimeSpan
	at := began
	for i := range uint64(300) {
		at = at.Add(time.Duration(10_000+i*i*7919%1000) * time.Microsecond)
		spans = append(spans, store.TimeSpan{LastVersion: i + 1, CommittedAt: at})
	}
	if text := store.EncodeTimes(spans, 1, began); len(text) > 2*len(spans) {
		t.Errorf("%d times take %d bytes", len(spans), len(text))
	}
	for _, wrong := range [][]byte{{1, 2, 3}, {0, 1}, {0, 1, 2, 0x80}, {9, 1, 1, 1}} {
		if got := store.DecodeTimes(wrong, 1, began); got != nil {
			t.Errorf("%v became %v", wrong, got)
		}
	}
}

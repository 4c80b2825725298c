package agui_test

import (
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// TestRestatingWritesNothing: a snapshot of what is held changes no message, however its text is spaced where the text held is
// that of its members, of a thread that was restored as of one in use.
func TestRestatingWritesNothing(t *testing.T) {
	t.Parallel()
	const held = `{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{}"}}]}`
	const spaced = `{"id":"a", "role":"assistant", "toolCalls":[ {"id":"c","type":"function","function":{"name":"n","arguments":"{}"}} ] }`
	const plain = `{"id":"u", "role":"user","content":"toolCalls \u0041"}`
	th, store := started(t), foldStore{}
	mustApply(t, th, `{"type":"MESSAGES_SNAPSHOT","messages":[`+spaced+`,`+plain+`]}`)
	store.write(t, th)
	for _, th := range []*agui.Thread{th, store.restore(t, "t", agui.DefaultLimits())} {
		for _, call := range []string{held, spaced} {
			mustApply(t, th, `{"type":"MESSAGES_SNAPSHOT","messages":[`+call+`,`+plain+`]}`)
			if changes := th.Changes(); len(changes.Upserts)+len(changes.Deletes) > 0 {
				t.Errorf("%s changes %d messages, and removes %d", call, len(changes.Upserts), len(changes.Deletes))
			}
		}
		if got := string(th.Messages()[0].AppendTo(nil)) + string(th.Messages()[1].AppendTo(nil)); got != held+plain {
			t.Errorf("held as %s", got)
		}
		if wrong := sound(th); wrong != "" {
			t.Error(wrong)
		}
	}
}

package agui

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// rememberedAmendments is how many of its last amendments a thread remembers, so that one that is sent again is known.
const rememberedAmendments = 64

// Amendment is what somebody adds to a thread beside its runs: a note, a correction of the state.
type Amendment struct {
	// ID names it, at most MaxIDBytes long. Digest is DigestOf all that it was asked with.
	ID     string
	Digest [8]byte
	// Reason is for people who read the log; it may be empty.
	Reason string
	// Input is what DecodeInput returned. Nothing of it counts but the messages.
	Input Event
	// StatePatch is a JSON Patch to the state, nil if there is none.
	StatePatch Value
}

// Amended is an amendment that a thread remembers.
type Amended struct {
	ID      string `json:"id"`
	Digest  string `json:"digest"`
	Version uint64 `json:"version"`
}

// Amended returns the amendment of an id if it is one of the last 64 of the thread, also if it was undone since.
func (t *Thread) Amended(id string) (Amended, bool) {
	for _, a := range t.track.Amended {
		if a.ID == id {
			return a, true
		}
	}
	return Amended{}, false
}

// Is reports whether an amendment of this digest is the one that is remembered.
func (a *Amended) Is(digest [8]byte) bool { return a.Digest == hex.EncodeToString(digest[:]) }

// Amend adds the messages whose ids the thread does not hold at the end, and applies the patch, by one entry that belongs
// to no run. What is remembered of the run that is open stays as it is: what it has opened can be continued, and it has not
// touched the state. The error is a *Violation if the patch does not apply or the thread would exceed its limits; the
// thread is unchanged then.
func (t *Thread) Amend(a Amendment) (Applied, error) {
	if size := t.Size() + len(a.Input.Text) + len(a.StatePatch); size > t.lim.Context {
		return Applied{}, &Violation{ContextTooLarge, "", fmt.Sprintf("state and messages would exceed %d bytes", t.lim.Context)}
	}
	if warning := t.amendState(a.StatePatch); warning != nil {
		return Applied{}, &Violation{warning.Code, strings.Replace(warning.Path, "/delta", "/statePatch", 1), warning.Detail}
	}
	amended := Amended{ID: a.ID, Digest: hex.EncodeToString(a.Digest[:]), Version: t.version + 1}
	t.track.noteAmended(amended)
	var w writer
	w.string("amendmentId", amended.ID)
	w.string("digest", amended.Digest)
	w.string("reason", a.Reason)
	if added := t.addMessages(a.Input.Messages); len(added) > 0 {
		w.value("messages", joinArray(added))
	}
	w.value("statePatch", a.StatePatch)
	var applied Applied
	t.record(&applied, &Entry{Kind: KindInput, Payload: w.object()})
	return applied, nil
}

// amendState applies a patch, if there is one, for which no run answers.
func (t *Thread) amendState(patch Value) *Warning {
	if patch == nil {
		return nil
	}
	touched := t.track.TouchedState
	defer func() { t.track.TouchedState = touched }()
	return t.patchState(patch, false)
}

// replayAmendment folds the stored input of an amendment.
func (t *Thread) replayAmendment(payload Value) error {
	amended := Amended{
		ID: unquote(memberOf(payload, "amendmentId")), Digest: unquote(memberOf(payload, "digest")), Version: t.version + 1,
	}
	t.track.noteAmended(amended)
	t.addMessages(memberOf(payload, "messages"))
	return t.insist(t.amendState(memberOf(payload, "statePatch")))
}

func (t *tracking) noteAmended(a Amended) {
	t.Amended = append(t.Amended, a)
	if forgotten := len(t.Amended) - rememberedAmendments; forgotten > 0 {
		t.Amended = append([]Amended(nil), t.Amended[forgotten:]...)
	}
}

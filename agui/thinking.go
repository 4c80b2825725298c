package agui

import (
	"fmt"
	"strconv"
	"strings"
)

// thinkingPrefix begins the ids that are given to reasoning that came as THINKING_* events, which have none.
const thinkingPrefix = "thinking-"

// translate turns the events of protocol version 0.0.45 into their successors, the REASONING_* events. The ids it gives
// are made of the version the event's entry gets, so they are unique on the thread and the same on every attempt.
// Other events are returned as they are.
func (t *Thread) translate(ev *Event) (*Event, []Warning) {
	to := Event{RawEvent: ev.RawEvent, Metadata: ev.Metadata, Timestamp: ev.Timestamp}
	switch ev.Type {
	case ThinkingStart:
		to.Type, to.MessageID = ReasoningStart, t.mintThinkingID()
	case ThinkingEnd:
		to.Type, to.MessageID = ReasoningEnd, t.openThinkingID(itemSpan)
	case ThinkingTextStart:
		to.Type, to.MessageID, to.Role = ReasoningMessageStart, t.mintThinkingID(), string(RoleReasoning)
	case ThinkingTextContent:
		to.Type, to.MessageID, to.Delta = ReasoningMessageContent, t.openThinkingID(itemReasoning), ev.Delta
	case ThinkingTextEnd:
		to.Type, to.MessageID = ReasoningMessageEnd, t.openThinkingID(itemReasoning)
	default:
		return ev, nil
	}
	written := synthesise(to).Event
	return &written, []Warning{{Code: EventTranslated, Path: "/type", Detail: fmt.Sprintf("%s became %s", ev.Type, to.Type)}}
}

func (t *Thread) mintThinkingID() string { return fmt.Sprintf("%s%d", thinkingPrefix, t.version+1) }

// openThinkingID returns the id given last of those that are open. Without any, it gives a new one, which verification
// will refuse.
func (t *Thread) openThinkingID(kind itemKind) string {
	prefix, last := string(itemOf(kind, thinkingPrefix)), uint64(0)
	for key := range t.track.Open {
		if digits, ours := strings.CutPrefix(string(key), prefix); ours {
			version, _ := strconv.ParseUint(digits, 10, 64)
			last = max(last, version)
		}
	}
	if last == 0 {
		return t.mintThinkingID()
	}
	return fmt.Sprintf("%s%d", thinkingPrefix, last)
}

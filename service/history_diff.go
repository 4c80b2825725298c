package service

import (
	"context"
	"crypto/sha256"
	"math"
	"strings"

	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

const (
	// maxMessageText and maxValueText are how much of a message and of any other value is shown where values are compared.
	maxMessageText = 64 << 10
	maxValueText   = 4 << 10
)

// DiffContext implements the contract.
func (s *Service) DiffContext(req *threadsvcv1.DiffContextRequest, stream threadsvcv1.HistoryService_DiffContextServer) error {
	if err := s.diffContext(stream.Context(), req, stream.Send); err != nil {
		return statusOf(err, s.cfg.Logger).Err()
	}
	return nil
}

func (s *Service) diffContext(ctx context.Context, req *threadsvcv1.DiffContextRequest, send func(*threadsvcv1.DiffContextResponse) error) error {
	fromMoment := req.GetFrom()
	if fromMoment == nil {
		fromMoment = &threadsvcv1.Moment{At: &threadsvcv1.Moment_Version{}}
	}
	from, err := s.readAt(ctx, req.GetThread(), fromMoment)
	if err != nil {
		return err
	}
	to, err := s.readAt(ctx, req.GetThread(), req.GetTo())
	if err != nil {
		return err
	}
	patch, err := diffStates(from, to)
	if err != nil {
		return err
	}
	messages := diffMessages(from.Messages(), to.Messages())
	info := &threadsvcv1.DiffInfo{
		FromVersion: from.Version(), ToVersion: to.Version(), StatePatchSize: uint64(len(patch)), Messages: uint64(len(messages)),
	}
	if err := send(&threadsvcv1.DiffContextResponse{Part: &threadsvcv1.DiffContextResponse_Info{Info: info}}); err != nil {
		return err
	}
	err = sendChunks(patch, func(chunk []byte) error {
		return send(&threadsvcv1.DiffContextResponse{Part: &threadsvcv1.DiffContextResponse_StatePatchChunk{StatePatchChunk: chunk}})
	})
	for i := 0; i < len(messages) && err == nil; i++ {
		change := messages[i].message()
		err = send(&threadsvcv1.DiffContextResponse{Part: &threadsvcv1.DiffContextResponse_Message{Message: change}})
	}
	return err
}

// storedDocs are the limits for documents that are stored: none, since they have passed those of their time.
var storedDocs = jsondoc.Limits{Depth: math.MaxInt, Ops: math.MaxInt, Size: math.MaxInt, Work: math.MaxInt}

func diffStates(from, to *agui.Thread) ([]byte, error) {
	before, err := jsondoc.Parse(from.State(nil), storedDocs)
	if err != nil {
		return nil, err
	}
	after, err := jsondoc.Parse(to.State(nil), storedDocs)
	if err != nil {
		return nil, err
	}
	return jsondoc.Diff(before, after), nil
}

// messageChange is a message that differs; one side may be nil.
type messageChange struct{ before, after *agui.Message }

// diffMessages finds the messages that are not the same in both lists: those of the second in its order, then those that
// only the first has.
func diffMessages(from, to []*agui.Message) (changes []messageChange) {
	held := make(map[string]*agui.Message, len(from))
	for _, m := range from {
		held[m.ID] = m
	}
	for _, m := range to {
		before := held[m.ID]
		delete(held, m.ID)
		if before == nil || string(before.AppendTo(nil)) != string(m.AppendTo(nil)) {
			changes = append(changes, messageChange{before, m})
		}
	}
	for _, m := range from {
		if held[m.ID] != nil {
			changes = append(changes, messageChange{m, nil})
		}
	}
	return changes
}

func (c *messageChange) message() *threadsvcv1.MessageChange {
	m := &threadsvcv1.MessageChange{}
	if c.before != nil {
		m.MessageId, m.Before = c.before.ID, valueText(c.before.AppendTo(nil), maxMessageText)
	}
	if c.after != nil {
		m.MessageId, m.After = c.after.ID, valueText(c.after.AppendTo(nil), maxMessageText)
	}
	m.MessageId = shown(m.MessageId)
	return m
}

// valueText is a value's text, cut to at most so many bytes; nil for nil.
func valueText(text []byte, most int) *threadsvcv1.ValueText {
	if text == nil {
		return nil
	}
	v := &threadsvcv1.ValueText{Text: text, Size: uint64(len(text))}
	if len(text) > most {
		sum := sha256.Sum256(text)
		v.Text, v.Sha256 = text[:most:most], sum[:]
	}
	return v
}

// shown is an id or a pointer, which may have lone surrogates, as people see it; a very long one is cut.
func shown(text string) string {
	if len(text) > maxPointer {
		text = text[:maxPointer] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

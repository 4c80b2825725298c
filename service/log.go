package service

import (
	"context"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

const (
	// logPage is how much of a log is read from the store at once.
	logPage = 4 << 20
	// maxPayload is how much of an entry's payload one LogEntry carries.
	maxPayload = 1 << 20
)

// kinds maps the stored kinds of entries to the contract's.
var kinds = map[agui.Kind]threadsvcv1.EntryKind{
	agui.KindEvent: threadsvcv1.EntryKind_ENTRY_KIND_EVENT,
	agui.KindInput: threadsvcv1.EntryKind_ENTRY_KIND_INPUT,
	agui.KindMark:  threadsvcv1.EntryKind_ENTRY_KIND_MARK,
}

// ReadLog implements the contract.
func (s *Service) ReadLog(req *threadsvcv1.ReadLogRequest, stream threadsvcv1.ThreadService_ReadLogServer) error {
	if err := s.readLog(stream.Context(), req, stream.Send); err != nil {
		return statusOf(err, s.cfg.Logger).Err()
	}
	return nil
}

func (s *Service) readLog(ctx context.Context, req *threadsvcv1.ReadLogRequest, send func(*threadsvcv1.ReadLogResponse) error) error {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return err
	}
	if req.GetFollow() {
		return s.follow(ctx, key, max(req.GetFromVersion(), 1), send)
	}
	head, err := s.head(ctx, key)
	if err != nil {
		return err
	}
	if err := checkEntryKept(&head, max(req.GetFromVersion(), 1)); err != nil {
		return err
	}
	out := logSender{send: send}
	for from := max(req.GetFromVersion(), 1); from <= head.Version; {
		segments, err := s.logSegments(ctx, key, from)
		if err != nil {
			return err
		}
		if len(segments) == 0 {
			break
		}
		for i := range segments {
			if err := out.segment(&segments[i], from); err != nil {
				return err
			}
		}
		from = segments[len(segments)-1].LastVersion + 1
	}
	return out.flush()
}

func (s *Service) logSegments(ctx context.Context, key store.Key, from uint64) ([]store.Segment, error) {
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	return s.store.Log(ctx, key, from, logPage)
}

// logSender gathers entries into messages of about maxPayload bytes.
type logSender struct {
	send func(*threadsvcv1.ReadLogResponse) error
	next *threadsvcv1.ReadLogResponse
	size int
}

// segment sends the entries of a segment from a version on.
func (o *logSender) segment(segment *store.Segment, from uint64) error {
	if segment.Err != nil {
		return o.unreadable(max(segment.FirstVersion, from), segment.LastVersion)
	}
	entries, _ := agui.DecodeEntries(segment.Entries)
	entries = entries[:min(uint64(len(entries)), segment.LastVersion-segment.FirstVersion+1)]
	for i := range entries {
		version := segment.FirstVersion + uint64(i)
		if version < from {
			continue
		}
		if err := o.entry(segment, version, &entries[i]); err != nil {
			return err
		}
	}
	if read := segment.FirstVersion + uint64(len(entries)); read <= segment.LastVersion {
		return o.unreadable(max(read, from), segment.LastVersion)
	}
	return nil
}

func (o *logSender) entry(segment *store.Segment, version uint64, e *agui.Entry) error {
	payload := e.Payload
	for {
		n := min(len(payload), maxPayload)
		err := o.add(n+len(segment.RunID), func(next *threadsvcv1.ReadLogResponse) {
			next.Entries = append(next.Entries, &threadsvcv1.LogEntry{
				Version: version, Kind: kinds[e.Kind], RunId: segment.RunID, Offset: e.Offset, Payload: payload[:n],
				CommitTime: timestamp(segment.CommitTime(version)), Inert: e.Flags&agui.FlagInert != 0, PayloadContinues: n < len(payload),
			})
		})
		if payload = payload[n:]; err != nil || len(payload) == 0 {
			return err
		}
	}
}

func (o *logSender) unreadable(first, last uint64) error {
	return o.add(16, func(next *threadsvcv1.ReadLogResponse) {
		next.Unreadable = append(next.Unreadable, &threadsvcv1.UnreadableRange{FirstVersion: first, LastVersion: last})
	})
}

func (o *logSender) add(size int, put func(*threadsvcv1.ReadLogResponse)) error {
	const overhead = 64
	if o.size > 0 && o.size+size > maxPayload {
		if err := o.flush(); err != nil {
			return err
		}
	}
	if o.next == nil {
		o.next = &threadsvcv1.ReadLogResponse{}
	}
	put(o.next)
	o.size += size + overhead
	return nil
}

func (o *logSender) flush() error {
	if o.next == nil {
		return nil
	}
	next := o.next
	o.next, o.size = nil, 0
	return o.send(next)
}

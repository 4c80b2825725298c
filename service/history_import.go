package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/archive"
)

const (
	// importIdle is how long an import may wait for its next piece.
	importIdle = 60 * time.Second
	// maxImports is the number of imports that one server has under way; others wait. Each keeps a transaction open.
	maxImports = 4
)

// errTooLarge refuses an import of a thread that is larger than threads may be here.
var errTooLarge = refuse(threadsvcv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "state and messages exceed the limit of this server",
	"code", string(agui.ContextTooLarge), "path", "", "offset", "0")

// ImportThread implements the contract.
func (s *Service) ImportThread(stream threadsvcv1.HistoryService_ImportThreadServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	pieces := make(chan piece)
	s.streams.Go(func() { receivePieces(ctx, stream, pieces) }) // it ends when the call does
	head, err := s.importThread(ctx, &chunkReader{pieces: pieces, idle: importIdle})
	if err != nil {
		return statusOf(errImport(err), s.cfg.Logger).Err()
	}
	return stream.SendAndClose(&threadsvcv1.ImportThreadResponse{Thread: threadMessage(&head)})
}

// piece is what was received.
type piece struct {
	req *threadsvcv1.ImportThreadRequest
	err error
}

// receivePieces receives until an error, which is the last piece.
func receivePieces(ctx context.Context, stream threadsvcv1.HistoryService_ImportThreadServer, pieces chan<- piece) {
	for {
		req, err := stream.Recv()
		select {
		case pieces <- piece{req, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// errImport tells what is wrong with the file.
func errImport(err error) error {
	var bad *errArchive
	switch {
	case errors.As(err, &bad), errors.Is(err, archive.ErrInvalid), errors.Is(err, store.ErrInvalid):
		return errField("chunk", "is not an exported thread: "+cut(err.Error(), 200))
	case errors.Is(err, store.ErrConflict):
		return errThreadExists
	}
	return err
}

// cut shortens a text for people.
func cut(text string, most int) string {
	if len(text) <= most {
		return shown(text)
	}
	return shown(text[:most]) + "…"
}

func (s *Service) importThread(ctx context.Context, in *chunkReader) (store.Head, error) {
	first, err := in.next()
	if err != nil {
		return store.Head{}, err
	}
	key, err := threadKey(first.GetThread(), "thread")
	if err != nil {
		return store.Head{}, err
	}
	reader := archive.NewReader(in, archiveFrame(s.cfg.Limits))
	head, err := s.importHead(reader, first.GetThread())
	if err != nil {
		return store.Head{}, err
	}
	select {
	case s.imports <- struct{}{}:
		defer func() { <-s.imports }()
	case <-ctx.Done():
		return store.Head{}, ctx.Err()
	}
	l, err := s.acquireUnloaded(ctx, key)
	if err != nil {
		return store.Head{}, err
	}
	defer l.release()
	defer s.cache.drop(l)
	err = s.store.Import(ctx, head, first.GetReplaceDeleted(), func(to store.Importer) error {
		sink := archiveSink{cut: to.Cut, segment: to.Segment, run: to.Run, warning: to.Warning}
		thread, err := judge(reader, &head, s.cfg.Limits, sink)
		if err != nil {
			return err
		}
		changes := wholeFold(thread)
		return to.Fold(&changes)
	})
	if err != nil {
		return store.Head{}, err
	}
	return s.head(ctx, key)
}

// importHead reads where the thread stands, and judges it.
func (s *Service) importHead(reader *archive.Reader, name *threadsvcv1.ThreadName) (store.Head, error) {
	part, err := reader.Next()
	if err != nil {
		return store.Head{}, err
	}
	written, ok := part.(*archive.Head)
	if !ok || written.ThreadID != name.GetThreadId() {
		return store.Head{}, badArchive("it is of another thread")
	}
	head, err := written.Store(name.GetTenant())
	if err != nil {
		return head, err
	}
	if len(head.Metadata.Text) > 0 {
		if head.Metadata, err = readMetadata("metadata", head.Metadata.Text); err != nil {
			return head, badArchive("its metadata are none")
		}
	}
	if checkOptionalID("stream", head.StreamID) != nil || checkOptionalID("run", head.ActiveRun) != nil || head.LeaseTTL < 0 || head.Runs < 0 {
		return head, badArchive("its head contradicts itself")
	}
	head.LeaseTTL = min(head.LeaseTTL, s.cfg.MaxLeaseTTL)
	return head, nil
}

// wholeFold is all of a thread's fold as changes to none.
func wholeFold(thread *agui.Thread) agui.Changes {
	fold := thread.Fold()
	c := agui.Changes{Version: fold.Version, Upserts: fold.Messages, Tracking: fold.Tracking}
	c.State.Replaced = thread.State(nil)
	return c
}

// chunkReader reads the pieces of a file.
type chunkReader struct {
	pieces <-chan piece
	idle   time.Duration
	rest   []byte
}

// next waits for the next piece, for so long.
func (r *chunkReader) next() (*threadsvcv1.ImportThreadRequest, error) {
	select {
	case p := <-r.pieces:
		r.rest = p.req.GetChunk()
		return p.req, p.err
	case <-time.After(r.idle):
		return nil, context.DeadlineExceeded
	}
}

// Read implements io.Reader.
func (r *chunkReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		_, err := r.next()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, fmt.Errorf("service: import: %w", err)
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

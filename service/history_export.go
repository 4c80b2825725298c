package service

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/archive"
)

// ExportThread implements the contract.
func (s *Service) ExportThread(req *threadsvcv1.ExportThreadRequest, stream threadsvcv1.HistoryService_ExportThreadServer) error {
	if err := s.exportThread(stream.Context(), req, stream.Send); err != nil {
		return statusOf(err, s.cfg.Logger).Err()
	}
	return nil
}

func (s *Service) exportThread(ctx context.Context, req *threadsvcv1.ExportThreadRequest, send func(*threadsvcv1.ExportThreadResponse) error) error {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return err
	}
	head, err := s.head(ctx, key)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(chunkWriter(func(chunk []byte) error {
		return send(&threadsvcv1.ExportThreadResponse{Chunk: chunk})
	}), chunkSize)
	if err := s.writeArchive(ctx, out, &head); err != nil {
		return err
	}
	return out.Flush()
}

// chunkWriter sends what is written in pieces.
type chunkWriter func(chunk []byte) error

func (w chunkWriter) Write(b []byte) (int, error) { return len(b), sendChunks(b, w) }

// writeArchive writes a thread as it was when its head was read: the log does not change, and what came after is left out.
func (s *Service) writeArchive(ctx context.Context, out io.Writer, head *store.Head) error {
	w, err := archive.NewWriter(out, archive.HeadOf(head))
	if err != nil {
		return err
	}
	if err := s.writeCut(ctx, w, head); err != nil {
		return err
	}
	for at := head.FirstVersion; at < head.Version; {
		segments, err := s.logSegments(ctx, head.Key, at+1)
		if err != nil {
			return err
		}
		if len(segments) == 0 { // it was deleted meanwhile
			return store.ErrNotFound
		}
		for i := range segments {
			if err := w.Segment(&segments[i], head.Version); err != nil {
				return fmt.Errorf("service: export versions %d to %d: %w", segments[i].FirstVersion, segments[i].LastVersion, err)
			}
		}
		at = segments[len(segments)-1].LastVersion
	}
	warnings := map[string]int64{}
	if err := s.eachWarning(ctx, head, func(row *store.Warning) error {
		warnings[row.RunID]++
		return nil
	}); err != nil {
		return err
	}
	if err := s.writeRuns(ctx, w, head, warnings); err != nil {
		return err
	}
	if err := s.eachWarning(ctx, head, w.Warning); err != nil {
		return err
	}
	if err := s.checkUncut(ctx, head); err != nil { // warnings that were removed meanwhile leave no gap
		return err
	}
	return w.Close()
}

// writeCut writes the fold at the first version, if the log was cut there.
func (s *Service) writeCut(ctx context.Context, w *archive.Writer, head *store.Head) error {
	if head.FirstVersion == 0 {
		return nil
	}
	thread, err := s.foldAt(ctx, head.Key, head.ThreadID, head.FirstVersion)
	if err != nil {
		return err
	}
	fold := thread.Fold()
	return w.Fold(&fold)
}

// writeRuns writes the rows of runs in the order of their ordinals. One that was going on when the head was read is written
// as it was then.
func (s *Service) writeRuns(ctx context.Context, w *archive.Writer, head *store.Head, warnings map[string]int64) error {
	for ordinal := head.PrunedRuns + 1; ordinal <= head.Runs; ordinal++ {
		readCtx, cancel := s.storeContext(ctx)
		runs, err := s.store.Runs(readCtx, head.Key, ordinal+1, 1)
		cancel()
		switch {
		case err != nil:
			return err
		case len(runs) == 0:
			return s.missing(ctx, head)
		case runs[0].Ordinal != ordinal:
			return fmt.Errorf("service: export: there is no run %d", ordinal)
		}
		row := runs[0]
		if row.Status == store.RunActive || row.LastVersion > head.Version {
			row = store.Run{
				RunID: row.RunID, Ordinal: row.Ordinal, StreamID: row.StreamID, ParentRunID: row.ParentRunID, InputHash: row.InputHash,
				Fence: row.Fence, FirstVersion: row.FirstVersion, FirstOffset: row.FirstOffset, Status: store.RunActive,
				Warnings: warnings[row.RunID], StartedAt: row.StartedAt,
			}
		}
		if err := w.Run(&row); err != nil {
			return err
		}
	}
	return nil
}

// missing says why a row of a thread is not there any more: the thread was pruned since its head was read, or deleted.
func (s *Service) missing(ctx context.Context, head *store.Head) error {
	if err := s.checkUncut(ctx, head); err != nil {
		return err
	}
	return store.ErrNotFound
}

// checkUncut returns a PrunedError if the thread was pruned since its head was read, and ErrNotFound if it was deleted.
func (s *Service) checkUncut(ctx context.Context, head *store.Head) error {
	now, err := s.head(ctx, head.Key)
	if err == nil && now.FirstVersion > head.FirstVersion {
		return &store.PrunedError{FirstVersion: now.FirstVersion, Version: head.FirstVersion}
	}
	return err
}

// eachWarning reads a thread's ledger up to its version.
func (s *Service) eachWarning(ctx context.Context, head *store.Head, take func(*store.Warning) error) error {
	const page = 500
	after := store.WarningPlace{Ordinal: -1}
	if head.FirstVersion > 0 { // those up to there may not be removed yet
		after = store.WarningPlace{Version: head.FirstVersion, Ordinal: math.MaxInt32}
	}
	for {
		readCtx, cancel := s.storeContext(ctx)
		rows, err := s.store.Warnings(readCtx, head.Key, after, page)
		cancel()
		if err != nil {
			return err
		}
		for i := range rows {
			if rows[i].Version > head.Version {
				return nil
			}
			if err := take(&rows[i]); err != nil {
				return err
			}
		}
		if len(rows) < page {
			return nil
		}
		after = store.WarningPlace{Version: rows[page-1].Version, Ordinal: rows[page-1].Ordinal}
	}
}

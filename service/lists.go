package service

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"sort"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// pageBytes is the size at which a page ends, well below the 4 MiB that gRPC clients accept by default.
const pageBytes = 2 << 20

// ListThreads implements the contract.
func (s *Service) ListThreads(ctx context.Context, req *threadsvcv1.ListThreadsRequest) (*threadsvcv1.ListThreadsResponse, error) {
	resp, err := s.listThreads(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) listThreads(ctx context.Context, req *threadsvcv1.ListThreadsRequest) (*threadsvcv1.ListThreadsResponse, error) {
	if err := checkOptionalID("tenant", req.GetTenant()); err != nil {
		return nil, err
	}
	place, err := readPlace(req, 8+16)
	if err != nil {
		return nil, err
	}
	query := store.ThreadQuery{Tenant: req.GetTenant(), Limit: pageSize(req.GetPageSize(), 50, 500) + 1}
	if query.Labels, err = labelsToFind("metadata", req.GetMetadata()); err != nil {
		return nil, err
	}
	if place != nil {
		if query.Before, err = placeTime(place); err != nil {
			return nil, err
		}
		query.BeforeKey = store.Key(place[8:])
	}
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	heads, err := s.store.Threads(ctx, query)
	if err != nil {
		return nil, err
	}
	resp := &threadsvcv1.ListThreadsResponse{}
	size := 0
	for i := range heads {
		if i == query.Limit-1 || size > pageBytes {
			last := &heads[i-1]
			place := binary.BigEndian.AppendUint64(nil, uint64(last.LastRunAt.UnixMicro()))
			resp.NextPageToken = writeToken(append(place, last.Key[:]...))
			break
		}
		size += len(heads[i].Metadata.Text)
		resp.Threads = append(resp.Threads, threadMessage(&heads[i]))
	}
	return resp, nil
}

// ListMessages implements the contract.
func (s *Service) ListMessages(ctx context.Context, req *threadsvcv1.ListMessagesRequest) (*threadsvcv1.ListMessagesResponse, error) {
	place, err := readPlace(req, 8)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	thread, err := s.readAt(ctx, req.GetThread(), req.GetMoment())
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	all := thread.Messages()
	if place != nil {
		after := int64(binary.BigEndian.Uint64(place))
		all = all[sort.Search(len(all), func(i int) bool { return all[i].Position > after }):]
	}
	resp := &threadsvcv1.ListMessagesResponse{Version: thread.Version()}
	limit, size := pageSize(req.GetPageSize(), 100, 1000), 0
	for i, m := range all {
		if i == limit || size > 0 && size+m.Size() > pageBytes {
			resp.NextPageToken = writeToken(binary.BigEndian.AppendUint64(nil, uint64(all[i-1].Position)))
			break
		}
		if m.Size() > maxAnswer {
			resp.TooLarge = append(resp.TooLarge, m.ID)
			continue
		}
		size += m.Size()
		resp.Messages = append(resp.Messages, m.AppendTo(nil))
	}
	return resp, nil
}

// maxAnswer is the size of a message that still fits an answer of 4 MiB.
const maxAnswer = 4<<20 - 64<<10

// ListRuns implements the contract.
func (s *Service) ListRuns(ctx context.Context, req *threadsvcv1.ListRunsRequest) (*threadsvcv1.ListRunsResponse, error) {
	resp, err := s.listRuns(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) listRuns(ctx context.Context, req *threadsvcv1.ListRunsRequest) (*threadsvcv1.ListRunsResponse, error) {
	key, place, err := s.listPlace(ctx, req.GetThread(), req, 8)
	if err != nil {
		return nil, err
	}
	var before int64
	if place != nil {
		before = int64(binary.BigEndian.Uint64(place))
	}
	limit := pageSize(req.GetPageSize(), 50, 500)
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	runs, err := s.store.Runs(ctx, key, before, limit+1)
	if err != nil {
		return nil, err
	}
	resp := &threadsvcv1.ListRunsResponse{}
	size := 0
	for i := range runs {
		run := &runs[i]
		length := len(run.Outcome) + len(run.Result) + len(run.Usage) + len(run.Error)
		if i == limit || i > 0 && size+length > pageBytes {
			resp.NextPageToken = writeToken(binary.BigEndian.AppendUint64(nil, uint64(runs[i-1].Ordinal)))
			break
		}
		size += length
		resp.Runs = append(resp.Runs, runMessage(run))
	}
	return resp, nil
}

// ListWarnings implements the contract.
func (s *Service) ListWarnings(ctx context.Context, req *threadsvcv1.ListWarningsRequest) (*threadsvcv1.ListWarningsResponse, error) {
	resp, err := s.listWarnings(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) listWarnings(ctx context.Context, req *threadsvcv1.ListWarningsRequest) (*threadsvcv1.ListWarningsResponse, error) {
	key, place, err := s.listPlace(ctx, req.GetThread(), req, 8+4)
	if err != nil {
		return nil, err
	}
	after := store.WarningPlace{Ordinal: -1}
	if place != nil {
		after = store.WarningPlace{Version: binary.BigEndian.Uint64(place), Ordinal: int32(binary.BigEndian.Uint32(place[8:]))}
	}
	limit := pageSize(req.GetPageSize(), 100, 1000)
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	warnings, err := s.store.Warnings(ctx, key, after, limit+1)
	if err != nil {
		return nil, err
	}
	resp := &threadsvcv1.ListWarningsResponse{}
	size := 0
	for i := range warnings {
		if i == limit || size > pageBytes {
			last := &warnings[i-1]
			place := binary.BigEndian.AppendUint64(nil, last.Version)
			resp.NextPageToken = writeToken(binary.BigEndian.AppendUint32(place, uint32(last.Ordinal)))
			break
		}
		size += len(warnings[i].Removed) + 256
		resp.Warnings = append(resp.Warnings, warningMessage(&warnings[i]))
	}
	return resp, nil
}

// listPlace checks what lists of a thread's rows have in common, and that the thread exists.
func (s *Service) listPlace(ctx context.Context, name *threadsvcv1.ThreadName, page pageRequest, size int) (store.Key, []byte, error) {
	key, err := threadKey(name, "thread")
	if err != nil {
		return key, nil, err
	}
	place, err := readPlace(page, size)
	if err != nil {
		return key, nil, err
	}
	_, err = s.head(ctx, key)
	return key, place, err
}

// pageSize returns the size of a page that was asked for and is not negative.
func pageSize(asked int32, absent, most int) int {
	if asked == 0 {
		return absent
	}
	return min(int(asked), most)
}

// writeToken writes a page token: the place in the order of the list after which the next page starts.
func writeToken(place []byte) string { return base64.RawURLEncoding.EncodeToString(place) }

// pageRequest is what the requests of all lists have.
type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
}

// readPlace checks a page's size and reads its token, of so many bytes; nil for the first page.
func readPlace(page pageRequest, size int) ([]byte, error) {
	if page.GetPageSize() < 0 {
		return nil, errField("page_size", "must not be negative")
	}
	if page.GetPageToken() == "" {
		return nil, nil
	}
	place, err := base64.RawURLEncoding.DecodeString(page.GetPageToken())
	if err != nil || len(place) != size {
		return nil, errField("page_token", "is not one of this list")
	}
	return place, nil
}

// placeTime reads the time that a place begins with. One that no timestamp can have is of no list.
func placeTime(place []byte) (time.Time, error) {
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(place))).UTC()
	if year := at.Year(); year < 1 || year > 9999 {
		return at, errField("page_token", "is not one of this list")
	}
	return at, nil
}

package service

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ListTenantWarnings implements the contract.
func (s *Service) ListTenantWarnings(ctx context.Context, req *threadsvcv1.ListTenantWarningsRequest) (*threadsvcv1.ListTenantWarningsResponse, error) {
	resp, err := s.listTenantWarnings(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) listTenantWarnings(ctx context.Context, req *threadsvcv1.ListTenantWarningsRequest) (*threadsvcv1.ListTenantWarningsResponse, error) {
	query, err := warningQuery(req.GetTenant(), req.GetFilter())
	if err != nil {
		return nil, err
	}
	place, err := readPlace(req, ledgerPlaceSize)
	if err != nil {
		return nil, err
	}
	if query.Before, err = readLedgerPlace(place); err != nil {
		return nil, err
	}
	query.Limit = pageSize(req.GetPageSize(), 100, 1000)
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	page, err := s.store.TenantWarnings(ctx, query)
	if err != nil {
		return nil, err
	}
	resp := &threadsvcv1.ListTenantWarningsResponse{}
	size := 0
	for i := range page.Warnings {
		w := &page.Warnings[i]
		if size > pageBytes {
			page.Next = page.Warnings[i-1].Place()
			break
		}
		size += len(w.Removed) + len(w.ThreadID) + 256
		resp.Warnings = append(resp.Warnings, &threadsvcv1.ThreadWarning{ThreadId: w.ThreadID, Warning: warningMessage(&w.Warning)})
	}
	if page.Next != (store.LedgerPlace{}) {
		resp.NextPageToken = writeToken(appendLedgerPlace(nil, page.Next))
	}
	return resp, nil
}

// ledgerPlaceSize is the length of a place in a tenant's ledger within a page token.
const ledgerPlaceSize = 8 + 16 + 8 + 4

func appendLedgerPlace(dst []byte, p store.LedgerPlace) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.RaisedAt.UnixMicro()))
	dst = binary.BigEndian.AppendUint64(append(dst, p.Key[:]...), p.Version)
	return binary.BigEndian.AppendUint32(dst, uint32(p.Ordinal))
}

func readLedgerPlace(place []byte) (p store.LedgerPlace, err error) {
	if place == nil {
		return p, nil
	}
	p.RaisedAt, err = placeTime(place)
	p.Key = store.Key(place[8:24])
	p.Version, p.Ordinal = binary.BigEndian.Uint64(place[24:]), int32(binary.BigEndian.Uint32(place[32:]))
	return p, err
}

// maxCode bounds the code that warnings are filtered by; those there are, are shorter.
const maxCode = 64

func warningQuery(tenant string, filter *threadsvcv1.WarningFilter) (q store.WarningQuery, err error) {
	if err := checkOptionalID("tenant", tenant); err != nil {
		return q, err
	}
	q.Tenant, q.Code = tenant, filter.GetCode()
	if len(q.Code) > maxCode || checkOptionalID("filter.code", q.Code) != nil {
		return q, errField("filter.code", "is no code of a warning")
	}
	if q.Labels, err = labelsToFind("filter.metadata", filter.GetMetadata()); err != nil {
		return q, err
	}
	q.From, err = optionalTime("filter.start_time", filter.GetStartTime())
	if err != nil {
		return q, err
	}
	q.To, err = optionalTime("filter.end_time", filter.GetEndTime())
	return q, err
}

// labelsToFind are the labels of metadata that are searched for.
func labelsToFind(field string, metadata map[string]string) (labels []string, err error) {
	for name, value := range metadata {
		if errors.Join(checkOptionalID(field, name), checkOptionalID(field, value)) != nil {
			return nil, errField(field, "names and values must be identifiers, as thread ids are")
		}
		labels = append(labels, labelOf(name, value))
	}
	return labels, nil
}

// optionalTime reads a time that may be absent, in microseconds as the store has it: the next one, since a time between two
// excludes the earlier one as a start and includes it as an end.
func optionalTime(field string, at *timestamppb.Timestamp) (time.Time, error) {
	if at == nil {
		return time.Time{}, nil
	}
	if at.CheckValid() != nil {
		return time.Time{}, errField(field, "is not a time")
	}
	return at.AsTime().Add(time.Microsecond - 1).Truncate(time.Microsecond), nil
}

// SummarizeWarnings implements the contract.
func (s *Service) SummarizeWarnings(ctx context.Context, req *threadsvcv1.SummarizeWarningsRequest) (*threadsvcv1.SummarizeWarningsResponse, error) {
	resp, err := s.summarizeWarnings(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) summarizeWarnings(ctx context.Context, req *threadsvcv1.SummarizeWarningsRequest) (*threadsvcv1.SummarizeWarningsResponse, error) {
	query, err := warningQuery(req.GetTenant(), req.GetFilter())
	if err != nil {
		return nil, err
	}
	if err := checkOptionalID("group_by", req.GetGroupBy()); err != nil {
		return nil, err
	}
	ctx, cancel := s.storeContext(ctx)
	defer cancel()
	summary, err := s.store.SummarizeWarnings(ctx, query, req.GetGroupBy())
	if err != nil {
		return nil, err
	}
	resp := &threadsvcv1.SummarizeWarningsResponse{MoreGroups: summary.More, CountedSince: timestamp(summary.Since)}
	for i := range summary.Groups {
		g := &summary.Groups[i]
		resp.Groups = append(resp.Groups, &threadsvcv1.WarningGroup{
			Code: g.Code, Value: g.Value, Count: g.Count, Threads: g.Threads, FirstTime: timestamp(g.First), LastTime: timestamp(g.Last),
		})
	}
	return resp, nil
}

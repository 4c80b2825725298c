package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// maxMetadata bounds a thread's metadata, in bytes of JSON.
const maxMetadata = 64 << 10

// CreateThread implements the contract.
func (s *Service) CreateThread(ctx context.Context, req *threadsvcv1.CreateThreadRequest) (*threadsvcv1.CreateThreadResponse, error) {
	resp, err := s.createThread(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return resp, nil
}

func (s *Service) createThread(ctx context.Context, req *threadsvcv1.CreateThreadRequest) (*threadsvcv1.CreateThreadResponse, error) {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return nil, err
	}
	metadata, err := readMetadata("metadata", req.GetMetadata())
	if err != nil {
		return nil, err
	}
	input := inputText{depth: s.cfg.Limits.Depth}
	input.string("threadId", req.GetThread().GetThreadId())
	input.string("runId", "unused") // a RunAgentInput has one
	input.json("state", req.GetState())
	input.list("messages", req.GetMessages())
	decoded, warnings, err := s.decodeInput(&input)
	if err != nil {
		return nil, err
	}
	decoded.RunID = ""
	p, err := s.tryCreate(ctx, key, req, decoded, warnings, metadata)
	if errors.Is(err, errStale) {
		p, err = s.tryCreate(ctx, key, req, decoded, warnings, metadata)
	}
	if err != nil {
		return nil, err
	}
	if err := await(ctx, p); err != nil {
		return nil, err
	}
	if errors.Is(p.result.Err, store.ErrConflict) {
		return nil, errThreadExists
	}
	if p.result.Err != nil {
		return nil, p.result.Err
	}
	head, err := s.head(ctx, key)
	if err != nil {
		return nil, err
	}
	return &threadsvcv1.CreateThreadResponse{
		Thread: threadMessage(&head), Warnings: appendWarnings(nil, warnings, 0, "", 1),
	}, nil
}

func (s *Service) tryCreate(ctx context.Context, key store.Key, req *threadsvcv1.CreateThreadRequest, input agui.Event, warnings []agui.Warning, metadata store.Metadata) (*pending, error) {
	l, err := s.acquireSettled(ctx, key, req.GetThread().GetThreadId())
	if err != nil {
		return nil, err
	}
	defer s.letGo(l)
	if l.exists {
		if err := s.checkCurrent(ctx, l, &l.head); err != nil {
			return nil, err
		}
		return nil, errThreadExists
	}
	applied, err := l.thread.Create(input)
	if err != nil {
		s.cache.drop(l)
		return nil, errInput(err)
	}
	applied.Warnings = warnings
	p := l.pend()
	p.commit.Create = &store.NewThread{
		Tenant: req.GetThread().GetTenant(), ThreadID: req.GetThread().GetThreadId(), Metadata: metadata,
		ReplaceDeleted: req.GetReplaceDeleted(),
	}
	p.wantsFold, l.exists = true, true
	l.add(p, &applied, 0, 0)
	l.seal(p)
	return p, nil
}

// GetThread implements the contract.
func (s *Service) GetThread(ctx context.Context, req *threadsvcv1.GetThreadRequest) (*threadsvcv1.GetThreadResponse, error) {
	thread, loaded, err := s.snapshot(ctx, req.GetThread())
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	msg := threadMessage(&loaded.Head)
	if loaded.LastRun != nil {
		msg.LastRun = runMessage(loaded.LastRun)
	}
	msg.OpenInterrupts = interrupts(thread)
	msg.PendingToolCalls = thread.PendingToolCalls()
	msg.MessageCount = int64(thread.MessageCount())
	msg.ContextSize = int64(thread.Size())
	msg.StateResyncDue = resyncMessage(thread)
	addPast(msg, thread)
	return &threadsvcv1.GetThreadResponse{Thread: msg}, nil
}

// UpdateThread implements the contract.
func (s *Service) UpdateThread(ctx context.Context, req *threadsvcv1.UpdateThreadRequest) (*threadsvcv1.UpdateThreadResponse, error) {
	head, err := s.updateThread(ctx, req)
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return &threadsvcv1.UpdateThreadResponse{Thread: threadMessage(&head)}, nil
}

func (s *Service) updateThread(ctx context.Context, req *threadsvcv1.UpdateThreadRequest) (store.Head, error) {
	key, err := threadKey(req.GetThread(), "thread")
	if err != nil {
		return store.Head{}, err
	}
	patch := req.GetMetadataPatch()
	if _, err := readMetadata("metadata_patch", patch); err != nil {
		return store.Head{}, err
	}
	var head store.Head
	err = s.patiently(ctx, key, func() (err error) {
		storeCtx, cancel := s.writeContext(ctx)
		defer cancel()
		head, err = s.store.UpdateMetadata(storeCtx, key, func(present store.Metadata) (store.Metadata, error) {
			return mergeMetadata(present, patch)
		})
		return err
	})
	return head, err
}

// mergeMetadata applies a merge patch (RFC 7396) to a thread's metadata.
func mergeMetadata(present store.Metadata, patch []byte) (store.Metadata, error) {
	text := present.Text
	if len(text) == 0 {
		text = []byte("{}")
	}
	if len(patch) == 0 {
		return present, nil
	}
	merged, err := jsonpatch.MergePatch(text, patch)
	if err != nil {
		return store.Metadata{}, errField("metadata_patch", "cannot be merged")
	}
	return readMetadata("metadata_patch", unescapeHTML(merged))
}

// unescapeHTML takes back the escapes of <, > and & that a merge patch writes into a JSON text.
func unescapeHTML(text []byte) []byte {
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			plain = append(plain, text[i])
			continue
		}
		escape := text[i:min(i+6, len(text))]
		if at := slices.Index([]string{`\u003c`, `\u003e`, `\u0026`}, string(escape)); at >= 0 {
			plain = append(plain, "<>&"[at])
			i += 5
			continue
		}
		plain = append(plain, text[i], text[i+1])
		i++
	}
	return plain
}

// DeleteThread implements the contract.
func (s *Service) DeleteThread(ctx context.Context, req *threadsvcv1.DeleteThreadRequest) (*threadsvcv1.DeleteThreadResponse, error) {
	gone, err := s.deleteThread(ctx, req.GetThread())
	if err != nil {
		return nil, statusOf(err, s.cfg.Logger).Err()
	}
	return &threadsvcv1.DeleteThreadResponse{
		Version: gone.Head.Version, LogHash: gone.Head.Hash[:], DeleteTime: timestamp(gone.DeletedAt), ErasedRows: gone.Rows,
	}, nil
}

func (s *Service) deleteThread(ctx context.Context, name *threadsvcv1.ThreadName) (store.Erasure, error) {
	key, err := threadKey(name, "thread")
	if err != nil {
		return store.Erasure{}, err
	}
	var gone store.Erasure
	err = s.patiently(ctx, key, func() (err error) {
		gone, err = s.eraseSettled(ctx, key)
		return err
	})
	return gone, err
}

// eraseSettled erases a thread of which nothing is queued here. The thread's lock is taken after its turn, as everybody does
// who needs both, and not kept while somebody else has the lock of the head.
func (s *Service) eraseSettled(ctx context.Context, key store.Key) (store.Erasure, error) {
	l, err := s.acquireUnloaded(ctx, key)
	if err != nil {
		return store.Erasure{}, err
	}
	defer l.release()
	defer s.cache.drop(l)
	storeCtx, cancel := s.writes.pass(ctx, deleteTimeouts*s.cfg.StoreTimeout)
	defer cancel()
	return s.store.Delete(storeCtx, key)
}

// deleteTimeouts is how many times longer an erasure may take than another call of the store: it is as long as the thread.
const deleteTimeouts = 6

// readMetadata checks a thread's metadata and finds its labels: a JSON object within the limits.
func readMetadata(field string, text []byte) (store.Metadata, error) {
	if len(text) == 0 {
		return store.Metadata{Text: []byte("{}")}, nil
	}
	if len(text) > maxMetadata {
		return store.Metadata{}, errField(field, "must not be longer than 64 KiB")
	}
	if !utf8.Valid(text) {
		return store.Metadata{}, errField(field, "must be UTF-8")
	}
	if err := agui.CheckJSON(text, 64); err != nil {
		return store.Metadata{}, errField(field, "must be a JSON object: "+err.Error())
	}
	var members map[string]json.RawMessage
	if bytes.TrimSpace(text)[0] != '{' || json.Unmarshal(text, &members) != nil {
		return store.Metadata{}, errField(field, "must be a JSON object")
	}
	return store.Metadata{Text: text, Labels: labelsOf(members)}, nil
}

// labelsOf returns the labels of the top-level string members, in order. Those with NUL are left out, as the store leaves
// out very long ones: they can be read, but not searched for.
func labelsOf(members map[string]json.RawMessage) []string {
	var labels []string
	for name, value := range members {
		var text string
		if value[0] != '"' || json.Unmarshal(value, &text) != nil {
			continue
		}
		if !strings.ContainsRune(name+text, 0) {
			labels = append(labels, labelOf(name, text))
		}
	}
	slices.Sort(labels)
	return labels
}

// labelOf is how a member is indexed. Neither part contains NUL.
func labelOf(name, value string) string { return name + "\x00" + value }

package service_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/store"
)

// finding is something that is wrong with a thread.
type finding struct {
	kind findingKind
	text string
}

type findingKind string

const (
	lost    findingKind = "lost"    // something acknowledged is missing, or is not what was sent
	doubled findingKind = "doubled" // an event was recorded twice
	differs findingKind = "differs" // two forms of the thread do not agree
)

// threadRecord is a thread as the service tells of it, and as it is stored.
type threadRecord struct {
	head       *threadsvcv1.Thread
	entries    []*threadsvcv1.LogEntry
	unreadable []*threadsvcv1.UnreadableRange
	info       *threadsvcv1.ContextInfo
	context    []byte
	messages   [][]byte

	segments []store.Segment
	loaded   *store.Loaded
}

// readRecord reads all of a thread that nobody writes to.
func readRecord(ctx context.Context, c threadsvcv1.ThreadServiceClient, db store.Store, id string) (*threadRecord, error) {
	var r threadRecord
	thread, err := c.GetThread(ctx, &threadsvcv1.GetThreadRequest{Thread: threadName(id)})
	if err != nil {
		return nil, err
	}
	r.head = thread.GetThread()
	if r.entries, r.unreadable, err = readLog(ctx, c, id, 0); err != nil {
		return nil, err
	}
	if r.info, r.context, err = getContext(ctx, c, id); err != nil {
		return nil, err
	}
	for token := ""; ; {
		page, err := c.ListMessages(ctx, &threadsvcv1.ListMessagesRequest{Thread: threadName(id), PageToken: token})
		if err != nil {
			return nil, err
		}
		r.messages = append(r.messages, page.GetMessages()...)
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	return &r, r.readStore(ctx, db, store.KeyOf(threadName(id).GetTenant(), id))
}

func (r *threadRecord) readStore(ctx context.Context, db store.Store, key store.Key) (err error) {
	if r.loaded, err = db.Load(ctx, key); err != nil {
		return err
	}
	for next := uint64(1); ; {
		segments, err := db.Log(ctx, key, next, 4<<20)
		if err != nil || len(segments) == 0 {
			return err
		}
		r.segments = append(r.segments, segments...)
		next = segments[len(segments)-1].LastVersion + 1
	}
}

// logged is one entry of a thread's log and the run it belongs to.
type logged struct {
	agui.Entry
	run string
}

// caused reports whether an event of a producer caused the entry.
func (e *logged) caused() bool {
	if e.Kind != agui.KindMark {
		return e.Kind == agui.KindEvent
	}
	var mark agui.Mark
	return json.Unmarshal(e.Payload, &mark) == nil && mark.Type == agui.MarkEventOmitted
}

// checker compares a record with what the thread's clients know.
type checker struct {
	thread   *loadThread
	record   *threadRecord
	log      []logged // the n-th has version n+1
	findings []finding
}

// checkThread returns what is wrong with a thread.
func checkThread(thread *loadThread, record *threadRecord) []finding {
	c := &checker{thread: thread, record: record}
	c.checkVersions()
	runs := map[string]*sentStream{}
	for _, stream := range thread.streams {
		for _, event := range stream.events {
			runs[event.run] = stream
		}
	}
	c.checkStreams(runs)
	c.checkReproduction(runs)
	c.checkFold(c.replay())
	return c.findings
}

func (c *checker) report(kind findingKind, format string, args ...any) {
	c.findings = append(c.findings, finding{kind, c.thread.id + ": " + fmt.Sprintf(format, args...)})
}

// checkVersions reads the log and checks that its versions have no gaps, and that ReadLog tells the same.
func (c *checker) checkVersions() {
	r := c.record
	for i := range r.segments {
		s := &r.segments[i]
		entries, err := agui.DecodeEntries(s.Entries)
		if first := uint64(len(c.log)) + 1; err != nil || s.Err != nil || s.FirstVersion != first || s.LastVersion+1 != first+uint64(len(entries)) {
			c.report(differs, "segment %d to %d follows version %d with %d entries (%v, %v)", s.FirstVersion, s.LastVersion, len(c.log), len(entries), err, s.Err)
		}
		for _, e := range entries {
			c.log = append(c.log, logged{e, s.RunID})
		}
	}
	n := uint64(len(c.log))
	if r.head.GetVersion() != n || r.info.GetVersion() != n || r.loaded.Head.Version != n || len(r.entries) != len(c.log) || len(r.unreadable) > 0 {
		c.report(differs, "the log has %d entries, the head version %d, the context version %d, ReadLog %d entries and %d gaps",
			n, r.head.GetVersion(), r.info.GetVersion(), len(r.entries), len(r.unreadable))
	}
	kinds := map[agui.Kind]threadsvcv1.EntryKind{
		agui.KindEvent: threadsvcv1.EntryKind_ENTRY_KIND_EVENT,
		agui.KindInput: threadsvcv1.EntryKind_ENTRY_KIND_INPUT,
		agui.KindMark:  threadsvcv1.EntryKind_ENTRY_KIND_MARK,
	}
	for i := range min(len(c.log), len(r.entries)) {
		have, told := &c.log[i], r.entries[i]
		if told.GetVersion() != uint64(i+1) || told.GetKind() != kinds[have.Kind] || told.GetRunId() != have.run ||
			told.GetOffset() != have.Offset || !bytes.Equal(told.GetPayload(), have.Payload) {
			c.report(differs, "ReadLog tells another entry than the stored one of version %d", i+1)
		}
	}
}

// arrival is what the log holds of a stream.
type arrival struct {
	next   int      // offset after the last event
	copies int      // of the text of the last event
	last   []uint64 // the last version of each event
}

// checkStreams checks that every event that was acknowledged is there, in its place, and none twice.
func (c *checker) checkStreams(runs map[string]*sentStream) {
	arrivals := map[*sentStream]*arrival{}
	for i := range c.log {
		e := &c.log[i]
		stream := runs[e.run]
		if stream == nil {
			c.report(differs, "version %d belongs to run %q, which nobody started", i+1, e.run)
			continue
		}
		if arrivals[stream] == nil {
			arrivals[stream] = &arrival{}
		}
		if e.caused() {
			c.arrive(stream, arrivals[stream], e, uint64(i+1))
		}
	}
	for _, stream := range c.thread.streams {
		a := arrivals[stream]
		if a == nil {
			a = &arrival{}
		}
		c.endOfEvent(stream, a)
		c.checkAcks(stream, a)
	}
}

// arrive follows an entry of a stream. Several entries of one event follow each other.
func (c *checker) arrive(s *sentStream, a *arrival, e *logged, version uint64) {
	offset := int(e.Offset)
	switch {
	case offset == a.next-1 && a.last[offset] == version-1:
	case offset < a.next:
		c.report(doubled, "%s: offset %d comes again with version %d", s.id, offset, version)
		return
	case offset >= len(s.events):
		c.report(differs, "%s: offset %d with version %d was never sent", s.id, offset, version)
		return
	default:
		c.endOfEvent(s, a)
		if offset > a.next {
			c.report(lost, "%s: offsets %d to %d are missing before version %d", s.id, a.next, offset-1, version)
		}
		for ; a.next <= offset; a.next++ {
			a.last = append(a.last, version)
		}
		a.copies = 0
	}
	a.last[offset] = version
	if string(e.Payload) == s.events[offset].text {
		a.copies++
	}
}

// endOfEvent judges the last event of a stream when all of its entries have been seen.
func (c *checker) endOfEvent(s *sentStream, a *arrival) {
	if a.next == 0 || !s.events[a.next-1].exact {
		return
	}
	if a.copies == 0 {
		c.report(lost, "%s: offset %d is not what was sent", s.id, a.next-1)
	}
	if a.copies > 1 {
		c.report(doubled, "%s: offset %d is there %d times", s.id, a.next-1, a.copies)
	}
}

// checkAcks checks that what was acknowledged is there, at a version that the acknowledgement covered.
func (c *checker) checkAcks(s *sentStream, a *arrival) {
	if a.next < s.acked {
		c.report(lost, "%s: offsets %d to %d were acknowledged and are missing", s.id, a.next, s.acked-1)
	}
	for _, ack := range s.acks {
		if ack.next > 0 && ack.next <= a.next && a.last[ack.next-1] > ack.version {
			c.report(differs, "%s: offset %d was acknowledged at version %d and has version %d", s.id, ack.next-1, ack.version, a.last[ack.next-1])
		}
	}
	if s.input == 0 {
		return
	}
	if s.input > uint64(len(c.log)) || c.log[s.input-1].Kind != agui.KindInput || c.log[s.input-1].run != s.id {
		c.report(lost, "%s: its input was acknowledged and is not version %d", s.id, s.input)
	}
}

// checkReproduction makes the log again out of the events that were sent, and checks that it is the same to the byte.
// What no event caused is taken from the log.
func (c *checker) checkReproduction(runs map[string]*sentStream) {
	again := agui.NewThread(c.thread.id, agui.DefaultLimits())
	for i := 0; i < len(c.log); {
		e := &c.log[i]
		stream := runs[e.run]
		if !e.caused() || stream == nil || e.Offset >= uint64(len(stream.events)) {
			_ = again.Replay(&e.Entry, e.Append(nil))
			i++
			continue
		}
		if stream.recorded && e.Offset == 0 {
			again.Await(stream.id)
		}
		applied, v := again.Apply(e.Offset, []byte(stream.events[e.Offset].text))
		if v != nil {
			c.report(differs, "%s: offset %d cannot come at version %d: %v", stream.id, e.Offset, i+1, v)
			return
		}
		var stored []byte
		for j := i; j < min(i+applied.Entries, len(c.log)); j++ {
			stored = c.log[j].Append(stored)
		}
		if !bytes.Equal(stored, applied.Stored) {
			c.report(differs, "%s: offset %d makes other entries than those from version %d", stream.id, e.Offset, i+1)
			return
		}
		i += applied.Entries
	}
	if text := again.RunInput(false).Text; !bytes.Equal(text, c.record.context) {
		c.report(differs, "the events that were sent do not make the context")
	}
}

// replay folds the log anew and checks on the way what readers were told and the stored fold. It returns the thread.
func (c *checker) replay() *agui.Thread {
	thread := agui.NewThread(c.thread.id, agui.DefaultLimits())
	told := map[uint64][]sighting{}
	for _, s := range c.thread.sightings {
		told[s.version] = append(told[s.version], s)
		if s.version > uint64(len(c.log)) {
			c.report(lost, "version %d was shown and is missing", s.version)
		}
	}
	var hash [32]byte
	for i := range c.log {
		stored := c.log[i].Append(nil)
		for _, err := range thread.ReplayAll(stored) {
			c.report(differs, "%v", err)
		}
		hash = agui.Chain(hash, stored)
		c.checkMoment(thread, told[uint64(i+1)], hash)
	}
	if !bytes.Equal(hash[:], c.record.head.GetLogHash()) || hash != thread.Hash() {
		c.report(differs, "the head's hash is not that of the log")
	}
	return thread
}

func (c *checker) checkMoment(thread *agui.Thread, told []sighting, hash [32]byte) {
	for _, s := range told {
		if s.hash != nil && !bytes.Equal(s.hash, hash[:]) {
			c.report(lost, "version %d was shown with another hash", s.version)
		}
		if s.context != sha256.Sum256(thread.RunInput(false).Text) {
			c.report(lost, "version %d was shown with another context", s.version)
		}
	}
	if fold := c.record.loaded.Fold; fold.Version == thread.Version() && fold.Version > 0 {
		c.compareFolds(foldOf(thread), fold, "stored fold")
	}
}

// foldOf is the thread's fold, made anew.
func foldOf(thread *agui.Thread) agui.Fold {
	fold := agui.Fold{Version: thread.Version(), State: thread.State(nil), Tracking: thread.Changes().Tracking, Input: thread.Input()}
	for _, m := range thread.Messages() {
		fold.Messages = append(fold.Messages, agui.StoredMessage{Position: m.Position, ID: m.ID, Role: m.Role, Body: m.AppendTo(nil)})
	}
	return fold
}

func (c *checker) compareFolds(want, got agui.Fold, name string) {
	if got.State == nil {
		got.State = agui.Value("{}")
	}
	if !bytes.Equal(want.State, got.State) {
		c.report(differs, "the %s has another state than the log", name)
	}
	if !bytes.Equal(want.Tracking, got.Tracking) {
		c.report(differs, "the %s has the tracking %s, the log %s", name, got.Tracking, want.Tracking)
	}
	if len(want.Messages)+len(got.Messages) > 0 && !reflect.DeepEqual(want.Messages, got.Messages) {
		c.report(differs, "the %s has other messages than the log", name)
	}
}

// checkFold compares the replayed log with what the service tells and with what is loaded.
func (c *checker) checkFold(thread *agui.Thread) {
	r := c.record
	if !bytes.Equal(thread.RunInput(false).Text, r.context) {
		c.report(differs, "the context is not what the log amounts to")
	}
	var messages [][]byte
	for _, m := range thread.Messages() {
		messages = append(messages, m.AppendTo(nil))
	}
	if len(messages)+len(r.messages) > 0 && !reflect.DeepEqual(messages, r.messages) {
		c.report(differs, "ListMessages tells other messages than the log")
	}
	restored, err := agui.Restore(c.thread.id, r.loaded.Fold, [32]byte{}, agui.DefaultLimits())
	if err != nil {
		c.report(differs, "%v", err)
		return
	}
	for i := range r.loaded.Tail {
		if unreadable := restored.ReplayAll(r.loaded.Tail[i].Entries); len(unreadable) > 0 {
			c.report(differs, "tail: %v", unreadable)
		}
	}
	want := foldOf(thread)
	c.compareFolds(want, foldOf(restored), "loaded thread")
	if restored.Version() != want.Version || !bytes.Equal(restored.Input(), want.Input) {
		c.report(differs, "the loaded thread has version %d or another input, the log version %d", restored.Version(), want.Version)
	}
}

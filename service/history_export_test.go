package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/threadsvc/threadsvc/agui"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
	"github.com/threadsvc/threadsvc/service"
	"github.com/threadsvc/threadsvc/store"
	"github.com/threadsvc/threadsvc/store/storetest"
)

func export(t testing.TB, c threadsvcv1.HistoryServiceClient, name *threadsvcv1.ThreadName) []byte {
	t.Helper()
	stream := must(c.ExportThread(t.Context(), &threadsvcv1.ExportThreadRequest{Thread: name}))(t)
	return must(readChunks(func() ([]byte, error) {
		msg, err := stream.Recv()
		return msg.GetChunk(), err
	}))(t)
}

// importFile imports a file in pieces of random sizes.
func importFile(ctx context.Context, c threadsvcv1.HistoryServiceClient, name *threadsvcv1.ThreadName, file []byte) (*threadsvcv1.Thread, error) {
	stream, err := c.ImportThread(ctx)
	if err != nil {
		return nil, err
	}
	req := &threadsvcv1.ImportThreadRequest{Thread: name}
	for first := true; first || len(file) > 0; first = false {
		n := min(len(file), 1+rand.IntN(100_000))
		req.Chunk, file = file[:n], file[n:]
		if err := stream.Send(req); errors.Is(err, io.EOF) {
			break // the server says why
		} else if err != nil {
			return nil, err
		}
		req = &threadsvcv1.ImportThreadRequest{}
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetThread(), err
}

// What was exported is imported as it was, in another database and for another tenant: every version, the log with its times,
// runs, warnings, metadata; nothing is found by verifying; and it is exported as the same bytes.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	h := evidence(t)
	h.thread = "t1"
	other := newHistorian(t, service.Config{})
	db := openStore(t, other.url)
	t.Cleanup(db.Close)
	for _, id := range []string{"t1", "t2", "t3"} {
		file := export(t, h.history, threadName(id))
		imported := must(importFile(t.Context(), other.history, threadName(id), file))(t)
		if imported.GetName().GetThreadId() != id || imported.GetVersion() == 0 {
			t.Errorf("imported %v", imported)
		}
		if again := export(t, other.history, threadName(id)); !bytes.Equal(file, again) {
			t.Errorf("%s: %d bytes were exported, and then %d others", id, len(file), len(again))
		}
		if findings := verify(t, db, store.KeyOf("test", id)); len(findings) > 0 {
			t.Errorf("%s: %v", id, findings)
		}
		elsewhere := &threadsvcv1.ThreadName{Tenant: "elsewhere", ThreadId: id}
		must(importFile(t.Context(), other.history, elsewhere, file))(t)
		if findings := verify(t, db, store.KeyOf("elsewhere", id)); len(findings) > 0 {
			t.Errorf("%s elsewhere: %v", id, findings)
		}
		a, b := converse(t, h.client, id), converse(t, other.client, id)
		if one, two := fmt.Sprint(a.log()), fmt.Sprint(b.log()); one != two {
			t.Errorf("%s: the log was\n%s\nand is\n%s", id, one, two)
		}
		if one, two := a.ledgers(), b.ledgers(); one != two {
			t.Errorf("%s: runs and warnings were\n%s\nand are\n%s", id, one, two)
		}
		if head, err := service.VerifyArchive(bytes.NewReader(file), agui.DefaultLimits()); err != nil || head.ThreadID != id || head.Version != imported.GetVersion() {
			t.Errorf("%s: the file: %v %v", id, head, err)
		}
	}
	h.conversation.client, h.history = other.client, other.history
	h.checkPast("imported")
}

// ledgers are a thread's runs and warnings, and where it stands.
func (c *conversation) ledgers() string {
	runs := must(c.client.ListRuns(c.t.Context(), &threadsvcv1.ListRunsRequest{Thread: threadName(c.thread)}))(c.t)
	warnings := must(c.client.ListWarnings(c.t.Context(), &threadsvcv1.ListWarningsRequest{Thread: threadName(c.thread)}))(c.t)
	thread := must(c.client.GetThread(c.t.Context(), &threadsvcv1.GetThreadRequest{Thread: threadName(c.thread)}))(c.t).GetThread()
	thread.LeaseExpireTime = nil
	return fmt.Sprint(runs, warnings, thread)
}

// An imported thread goes on: what was sent before is known, the run that was going on is gone on with, and another follows.
func TestImportedThreadsGoOn(t *testing.T) {
	t.Parallel()
	h, other := newHistorian(t, service.Config{}), newHistorian(t, service.Config{})
	h.record("r1", event("OF_THE_FUTURE"), stateDelta(`[{"op":"add","path":"/a","value":1}]`))
	h.open("r2", textStart("m"), textDelta("m", "half"))
	must(importFile(t.Context(), other.history, threadName("t1"), export(t, h.history, threadName("t1"))))(t)
	c := converse(t, other.client, "t1")
	c.run, c.offset = h.run, 0
	c.append(runStarted("t1", "r2"), textStart("m"), textDelta("m", "half"), textDelta("m", " and half"), textEnd("m"), runFinished("t1", "r2"))
	c.wantState(`{"a":1}`)
	if got := c.context().Messages[0].Content; got != "half and half" {
		t.Errorf("the message says %q", got)
	}
	c.stillWorks()
	wantReason(t, fails(importFile(t.Context(), other.history, threadName("t1"), export(t, h.history, threadName("t1")))), codes.AlreadyExists, "THREAD_EXISTS")
}

func fails[T any](_ T, err error) error { return err }

// A file that was altered, cut, or made up is refused, and leaves nothing behind.
func TestImportRefusesWhatIsNotWhole(t *testing.T) {
	t.Parallel()
	h, other := newHistorian(t, service.Config{}), newHistorian(t, service.Config{})
	h.record("r1", event("OF_THE_FUTURE"), stateSnapshot(`{"v":"`+storetest.Noise(1, 6000)+`"}`))
	file := export(t, h.history, threadName("t1"))
	refused := func(what string, name *threadsvcv1.ThreadName, file []byte) {
		t.Helper()
		_, err := importFile(t.Context(), other.history, name, file)
		wantReason(t, err, codes.InvalidArgument, "INVALID_REQUEST")
		if n := other.number(`SELECT (SELECT count(*) FROM threads) + (SELECT count(*) FROM log_segments) + (SELECT count(*) FROM runs) + (SELECT count(*) FROM contents)`); n != 0 {
			t.Fatalf("%s: %d rows were left behind", what, n)
		}
	}
	refused("another thread", threadName("t2"), file)
	refused("nothing", threadName("t1"), nil)
	refused("something", threadName("t1"), []byte("threadsvc-export 2\nwhatever"))
	refused("more", threadName("t1"), append(bytes.Clone(file), 0))
	for range 60 {
		refused("cut", threadName("t1"), file[:rand.IntN(len(file))])
		flipped := bytes.Clone(file)
		flipped[rand.IntN(len(file))] ^= 1 << rand.IntN(8)
		refused("flipped", threadName("t1"), flipped)
	}
	for i := range file { // without a database, every byte
		flipped := bytes.Clone(file)
		flipped[i] ^= 1 << (i % 8)
		if _, err := service.VerifyArchive(bytes.NewReader(flipped), agui.DefaultLimits()); err == nil {
			t.Fatalf("byte %d was altered, and not found", i)
		}
	}
	must(importFile(t.Context(), other.history, threadName("t1"), file))(t)
}

// A file can be written by anybody: what would fold into more than the limits is refused while it is folded.
func TestImportStaysWithinLimits(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	limits := agui.DefaultLimits()
	limits.State, limits.Context = 64<<10, 128<<10
	small := newHistorian(t, service.Config{Limits: limits})
	h.record("r1", stateSnapshot(`{"a":"`+strings.Repeat("x", 1000)+`"}`))
	for i := range 8 {
		h.record(fmt.Sprint("double", i), stateDelta(fmt.Sprintf(`[{"op":"copy","from":"","path":"/b%d"}]`, i)))
	}
	_, err := importFile(t.Context(), small.history, threadName("t1"), export(t, h.history, threadName("t1")))
	if reason, _ := reasonOf(err); !slices.Contains([]string{"INVALID_REQUEST", "LIMIT_EXCEEDED"}, reason) {
		t.Errorf("%v", err)
	}
	h.thread = "t2"
	h.record("r1", text("m", strings.Repeat("x", 200_000))...)
	_, err = importFile(t.Context(), small.history, threadName("t2"), export(t, h.history, threadName("t2")))
	wantReason(t, err, codes.ResourceExhausted, "LIMIT_EXCEEDED")
}

// More imports at once than a server has under way wait for each other, and all get through.
func TestManyImportsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHistorian(t, service.Config{})
	h.record("r1", text("m", "hello")...)
	file := export(t, h.history, threadName("t1"))
	var imports sync.WaitGroup
	for i := range 12 {
		imports.Go(func() {
			name := &threadsvcv1.ThreadName{Tenant: fmt.Sprint("tenant", i), ThreadId: "t1"}
			if _, err := importFile(t.Context(), h.history, name, file); err != nil {
				t.Errorf("import %d: %v", i, err)
			}
		})
	}
	imports.Wait()
}

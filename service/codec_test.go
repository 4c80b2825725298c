package service

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// The codec reads what protobuf reads, and refuses what it refuses.
func FuzzEventCodec(f *testing.F) {
	handle := &threadsvcv1.RunHandle{Thread: &threadsvcv1.ThreadName{ThreadId: "t"}, RunId: "r", FencingToken: 7}
	for _, req := range []*threadsvcv1.AppendEventsRequest{
		{}, {Run: handle}, {Batch: &threadsvcv1.EventBatch{}},
		{Batch: &threadsvcv1.EventBatch{Offset: 9, Events: [][]byte{[]byte(`{}`), {}, bytes.Repeat([]byte{'x'}, 300)}}},
		{Run: handle, Batch: &threadsvcv1.EventBatch{Events: [][]byte{[]byte(`{"type":"RUN_STARTED"}`)}}},
	} {
		text, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(append(text, text...)) // fields that are repeated are merged
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte{0x12, 0x02, 0x13, 0x14}) // a group where events would be
	f.Add([]byte{0x10, 0x01})             // a number where the batch would be
	codec := newEventCodec()
	f.Fuzz(func(t *testing.T, text []byte) {
		want, got := &threadsvcv1.AppendEventsRequest{}, &threadsvcv1.AppendEventsRequest{}
		wantErr := proto.Unmarshal(text, want)
		gotErr := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, got)
		if (wantErr == nil) != (gotErr == nil) {
			t.Fatalf("% x: %v, protobuf says %v", text, gotErr, wantErr)
		}
		if wantErr == nil && !proto.Equal(want, got) {
			t.Fatalf("% x: read as %v, want %v", text, got, want)
		}
	})
}

// Chunks are written as protobuf writes them.
func TestEventCodecChunks(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 127, 128, 300_000} {
		chunk := bytes.Repeat([]byte{'c'}, size)
		for _, message := range []proto.Message{
			&threadsvcv1.StartRunResponse{Part: &threadsvcv1.StartRunResponse_InputChunk{InputChunk: chunk}},
			&threadsvcv1.GetContextResponse{Part: &threadsvcv1.GetContextResponse_InputChunk{InputChunk: chunk}},
			&threadsvcv1.GetStateResponse{Part: &threadsvcv1.GetStateResponse_Chunk{Chunk: chunk}},
			&threadsvcv1.DiffContextResponse{Part: &threadsvcv1.DiffContextResponse_StatePatchChunk{StatePatchChunk: chunk}},
			&threadsvcv1.GetContextResponse{Part: &threadsvcv1.GetContextResponse_Info{Info: &threadsvcv1.ContextInfo{Version: 7}}},
		} {
			want, err := proto.Marshal(message)
			if err != nil {
				t.Fatal(err)
			}
			got, err := newEventCodec().Marshal(message)
			if err != nil || !bytes.Equal(got.Materialize(), want) {
				t.Errorf("%T with %d bytes: another text than protobuf's, error %v", message, size, err)
			}
		}
	}
}

// The events of a message share one allocation and none can grow into its neighbour.
func TestEventCodecAliases(t *testing.T) {
	t.Parallel()
	req := &threadsvcv1.AppendEventsRequest{Batch: &threadsvcv1.EventBatch{}}
	for range 100 {
		req.Batch.Events = append(req.Batch.Events, bytes.Repeat([]byte{'a'}, 100))
	}
	text, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	got := &threadsvcv1.AppendEventsRequest{}
	if err := newEventCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, got); err != nil {
		t.Fatal(err)
	}
	_ = append(got.Batch.Events[0], "overwritten"...)
	clear(text)
	if !proto.Equal(got, req) {
		t.Error("the events changed with their neighbour or with gRPC's buffer")
	}
}

package service

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// A text in recycled memory is, on the wire, what the messages of the contract would be, and its memory is given back with
// the last of its pieces.
func TestLentText(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 5_000, chunkSize, chunkSize + 1, 3*chunkSize + 70_000} {
		text := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		l := lend(size)
		var got []byte
		var sent []mem.BufferSlice
		err := l.send(append((*l.memory)[:0], text...), func(message any) error {
			data, err := newEventCodec().Marshal(message)
			sent = append(sent, data)
			var resp threadsvcv1.GetContextResponse
			if err == nil {
				err = proto.Unmarshal(data.Materialize(), &resp)
			}
			got = append(got, resp.GetInputChunk()...)
			return err
		})
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("of %d bytes %d came, or others: %v", size, len(got), err)
		}
		if left := int(l.pieces.Load()); left != len(sent) {
			t.Errorf("%d bytes: %d of %d pieces are not written", size, left, len(sent))
		}
		for _, data := range sent {
			data.Free()
		}
		if left := l.pieces.Load(); left != 0 && size >= 5_000 && size%chunkSize != 1 {
			t.Errorf("%d bytes: %d pieces are left", size, left)
		}
	}
}

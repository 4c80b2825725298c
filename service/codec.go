package service

import (
	"errors"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// eventCodec is gRPC's codec of protobuf messages, but for three kinds of them.
//
// The events of an AppendEventsRequest are parts of the message as it was received, which is copied once, and not copies of
// their own. At a hundred small events in a message that is a tenth of what the service does for them. What is kept of an
// event for longer than its commit must be copied, or it keeps the whole message in memory.
//
// The chunks of contexts and states are sent from where they are, and must not change afterwards. A lentPiece is such a chunk
// in memory that is used again once it was written.
type eventCodec struct{ encoding.CodecV2 }

func newEventCodec() eventCodec { return eventCodec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c eventCodec) Unmarshal(data mem.BufferSlice, v any) error {
	req, ok := v.(*threadsvcv1.AppendEventsRequest)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	return unmarshalAppend(data.Materialize(), req)
}

// Marshal implements encoding.CodecV2.
func (c eventCodec) Marshal(v any) (mem.BufferSlice, error) {
	if piece, ok := v.(*lentPiece); ok {
		return mem.BufferSlice{chunkHeader(piece.chunk), piece.buffer()}, nil
	}
	if chunk := chunkOf(v); chunk != nil {
		return mem.BufferSlice{chunkHeader(chunk), mem.SliceBuffer(chunk)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// chunkHeader is what stands before a chunk that is all of a message.
func chunkHeader(chunk []byte) mem.SliceBuffer {
	header := protowire.AppendTag(make([]byte, 0, 16), fieldChunk, protowire.BytesType)
	return protowire.AppendVarint(header, uint64(len(chunk)))
}

// fieldChunk is the number of the field that chunkOf's messages have, as in the contract.
const fieldChunk = 2

// chunkOf is the chunk of a message that has nothing else.
func chunkOf(v any) []byte {
	switch v := v.(type) {
	case *threadsvcv1.StartRunResponse:
		return v.GetInputChunk()
	case *threadsvcv1.GetContextResponse:
		return v.GetInputChunk()
	case *threadsvcv1.GetStateResponse:
		return v.GetChunk()
	case *threadsvcv1.DiffContextResponse:
		return v.GetStatePatchChunk()
	}
	return nil
}

// The numbers of the fields that lead to the events, as in the contract.
const (
	fieldBatch  = 2
	fieldEvents = 2
)

// manyEvents bounds the room that is made for events on the guess that all are as long as the first.
const manyEvents = 1024

var errWireFormat = errors.New("service: the message is not in the wire format of protobuf")

// unmarshalAppend is proto.Unmarshal with events that alias text.
func unmarshalAppend(text []byte, req *threadsvcv1.AppendEventsRequest) error {
	var events [][]byte
	rest, err := eachField(text, fieldBatch, func(rest, batch []byte) ([]byte, error) {
		others, err := eachField(batch, fieldEvents, func(rest, event []byte) ([]byte, error) {
			if events == nil {
				events = make([][]byte, 0, min(len(batch)/(len(event)+2)+1, manyEvents))
			}
			events = append(events, event[:len(event):len(event)])
			return rest, nil
		})
		rest = protowire.AppendTag(rest, fieldBatch, protowire.BytesType)
		return protowire.AppendBytes(rest, others), err
	})
	if err != nil {
		return err
	}
	if err := protobuf.Unmarshal(rest, req); err != nil {
		return err
	}
	if len(events) > 0 {
		req.Batch.Events = events
	}
	return nil
}

// eachField takes the values of a field of type bytes or message out of a message, and returns the other fields with
// what take adds to them.
func eachField(text []byte, field protowire.Number, take func(rest, value []byte) ([]byte, error)) (rest []byte, err error) {
	for len(text) > 0 {
		number, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return nil, errWireFormat
		}
		size := protowire.ConsumeFieldValue(number, kind, text[n:])
		if size < 0 {
			return nil, errWireFormat
		}
		if number == field && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(text[n:])
			if rest, err = take(rest, value); err != nil {
				return nil, err
			}
		} else {
			rest = append(rest, text[:n+size]...)
		}
		text = text[n+size:]
	}
	return rest, nil
}

package service

import (
	"github.com/threadsvc/threadsvc/agui"
	"github.com/threadsvc/threadsvc/agui/jsondoc"
	threadsvcv1 "github.com/threadsvc/threadsvc/proto/threadsvc/v1"
)

// maxPointer bounds a JSON pointer of a request, in bytes.
const maxPointer = 64 << 10

// GetState implements the contract.
func (s *Service) GetState(req *threadsvcv1.GetStateRequest, stream threadsvcv1.HistoryService_GetStateServer) error {
	if err := s.getState(req, stream); err != nil {
		return statusOf(err, s.cfg.Logger).Err()
	}
	return nil
}

func (s *Service) getState(req *threadsvcv1.GetStateRequest, stream threadsvcv1.HistoryService_GetStateServer) error {
	pointer, err := readPointer("pointer", req.GetPointer())
	if err != nil {
		return err
	}
	thread, err := s.readAt(stream.Context(), req.GetThread(), req.GetMoment())
	if err != nil {
		return err
	}
	value, found := valueAt(thread, pointer)
	hash := thread.Hash()
	info := &threadsvcv1.StateInfo{Version: thread.Version(), Found: found, Size: uint64(len(value)), LogHash: hash[:]}
	if err := stream.Send(&threadsvcv1.GetStateResponse{Part: &threadsvcv1.GetStateResponse_Info{Info: info}}); err != nil {
		return err
	}
	return sendChunks(value, func(chunk []byte) error {
		return stream.Send(&threadsvcv1.GetStateResponse{Part: &threadsvcv1.GetStateResponse_Chunk{Chunk: chunk}})
	})
}

// valueAt is the text of the value at a place of the state, and whether there is one.
func valueAt(thread *agui.Thread, pointer jsondoc.Pointer) ([]byte, bool) {
	if pointer == (jsondoc.Pointer{}) {
		return thread.State(nil), true
	}
	return thread.StateAt(pointer)
}

// readPointer reads a JSON pointer of a request.
func readPointer(field, text string) (jsondoc.Pointer, error) {
	if len(text) > maxPointer {
		return jsondoc.Pointer{}, errField(field, "must not be longer than 64 KiB")
	}
	pointer, err := jsondoc.ParsePointer(text)
	if err != nil {
		return pointer, errField(field, "must be a JSON pointer of RFC 6901")
	}
	return pointer, nil
}

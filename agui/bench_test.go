package agui_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/threadsvc/threadsvc/agui"
)

// BenchmarkToken applies one token to a message that has so many already: the cost must not depend on how many.
func BenchmarkToken(b *testing.B) {
	for _, held := range []int{10, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("after-%d", held), func(b *testing.B) {
			th := started(b)
			mustApply(b, th, `{"type":"TEXT_MESSAGE_START","messageId":"m"}`)
			token := []byte(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"word "}`)
			benchmarkAfter(b, th, held, token)
		})
	}
}

// BenchmarkChunk is BenchmarkToken for chunks.
func BenchmarkChunk(b *testing.B) {
	for _, held := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("after-%d", held), func(b *testing.B) {
			th := started(b)
			benchmarkAfter(b, th, held, []byte(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"word "}`))
		})
	}
}

// BenchmarkArguments is BenchmarkToken for the arguments of a call whose message holds so many calls.
func BenchmarkArguments(b *testing.B) {
	for _, calls := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("among-%d", calls), func(b *testing.B) {
			th := started(b)
			for i := range calls {
				mustApply(b, th, fmt.Sprintf(`{"type":"TOOL_CALL_START","toolCallId":"c%d","toolCallName":"n","parentMessageId":"m"}`, i))
			}
			benchmarkAfter(b, th, 10, []byte(`{"type":"TOOL_CALL_ARGS","toolCallId":"c0","delta":"word "}`))
		})
	}
}

// BenchmarkStateDelta applies one operation to states of several sizes.
func BenchmarkStateDelta(b *testing.B) {
	for _, kb := range []int{1, 100, 1 << 10, 10 << 10} {
		b.Run(fmt.Sprintf("%dKB", kb), func(b *testing.B) {
			lim := agui.DefaultLimits()
			lim.Event = 64 << 20
			th := agui.NewThread("t", lim)
			mustApply(b, th, runStarted)
			mustApply(b, th, `{"type":"STATE_SNAPSHOT","snapshot":{"n":0,"rows":[`+strings.Repeat(`{"name":"a row of the state","done":false},`, kb*25)+`0]}}`)
			benchmarkAfter(b, th, 10, []byte(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":1}]}`))
		})
	}
}

func benchmarkAfter(b *testing.B, th *agui.Thread, before int, event []byte) {
	apply := func() {
		if _, v := th.Apply(1, event); v != nil {
			b.Fatal(v)
		}
	}
	for range before {
		apply()
	}
	th.Settle()
	b.ReportAllocs()
	for b.Loop() {
		apply()
	}
}

package bench

// leastEntries is how many entries a log of so many messages and runs has at least: of texts and state it has none then.
func leastEntries(messages, runs int) int { return runs * framesOf(callsOf(messages, runs)) }

// callsOf is how many tool calls each run makes to bring its part of the messages: a user's, and for each call the call and
// its result, and the answer.
func callsOf(messages, runs int) int { return (messages/runs - 2) / 2 }

// framesOf are the events of a run of so many tool calls that are neither text nor state deltas.
func framesOf(calls int) int {
	const run, message, call = 2, 2, argParts + 3
	return run + message*(calls+1) + call*calls
}

// workload is what one producer sends so that the thread becomes what the flags say.
func (o *HistoryOptions) workload() Workload {
	calls, each := callsOf(o.Messages, o.Runs), o.Entries/o.Runs
	rest := each - framesOf(calls)
	deltas := min(rest, int(o.Deltas*float64(each)))
	return Workload{
		Threads: 1, Warmup: 1, Runs: max(1, o.Runs-1), Tokens: rest - deltas, ToolCalls: calls, Deltas: deltas,
		StateBytes: o.StateBytes, Batch: o.Batch, Snapshots: "none", Seed: o.Seed,
	}
}

// cut cuts a plan to a number of runs, and the end of the last off, if it is to be still going on.
func (o *HistoryOptions) cut(p *plan) {
	of := &p.producers[0]
	of.ends = of.ends[:o.Runs]
	last := &of.ends[o.Runs-1]
	of.batches = of.batches[:*last]
	if o.Open && *last > 1 {
		*last--
		of.batches = of.batches[:*last]
	}
}

// served is the variant that says how the server is started. A run that is left open keeps its lease meanwhile.
func (h *historian) served() *Variant {
	v := h.o.base.Variant
	if h.o.Open {
		v.ServeArgs = append([]string{"--lease-ttl=1h"}, v.ServeArgs...)
	}
	return &v
}

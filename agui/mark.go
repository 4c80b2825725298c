package agui

// MarkType names what the service did.
type MarkType string

// The marks. They are stored and shown: their names never change.
const (
	// MarkRunTruncated closes a run that never got its terminal event.
	MarkRunTruncated MarkType = "RUN_TRUNCATED"
	// MarkRunFailed closes a run because of a protocol violation.
	MarkRunFailed MarkType = "RUN_FAILED"
	// MarkRunOpened precedes a RUN_ERROR that came first of all in the stream of a run that nobody had announced.
	MarkRunOpened MarkType = "RUN_OPENED"
	// MarkEventOmitted stands for a received event that left no canonical event, so that its offset is accounted for.
	MarkEventOmitted MarkType = "EVENT_OMITTED"
	// MarkInterruptsAbandoned gives up the interrupts that the last run left open.
	MarkInterruptsAbandoned MarkType = "INTERRUPTS_ABANDONED"
)

// Mark is the payload of a KindMark entry, as JSON.
type Mark struct {
	Type MarkType `json:"type"`
	// RunID is the run that was closed or opened, or whose interrupts were given up; of an omitted event, the run whose
	// RUN_STARTED has not come yet.
	RunID string `json:"runId,omitempty"`
	// Code says why: a violation's or a warning's code, or a reason such as LEASE_EXPIRED.
	Code Code `json:"code,omitempty"`
	// Path and Detail are those of the violation; of what somebody asked for, Detail is the reason that was given.
	Path   string `json:"path,omitempty"`
	Detail string `json:"detail,omitempty"`
	// EventType is the type of an omitted event.
	EventType string `json:"eventType,omitempty"`
}

// Reasons for MarkRunTruncated and MarkInterruptsAbandoned.
const (
	// LeaseExpired: the writer's lease ran out.
	LeaseExpired Code = "LEASE_EXPIRED"
	// TakenOver: another run was started with the wish to take over.
	TakenOver Code = "TAKEN_OVER"
	// RunEndedByRequest: somebody asked for the end.
	RunEndedByRequest Code = "RUN_ENDED"
)

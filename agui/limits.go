package agui

// ProtocolVersion is the version of the protocol spoken here, as run inputs declare it.
const ProtocolVersion = "1.1"

// MaxIDBytes is the length limit of every identifier, in bytes of UTF-8.
const MaxIDBytes = 512

// Limits bounds what a producer can make a thread cost. All sizes are in bytes of JSON text.
type Limits struct {
	// Event is the longest event or run input accepted.
	Event int
	// Depth is the deepest nesting of an event, a state or a message.
	Depth int
	// State is the size the state, or the content of one activity, may grow to.
	State int
	// Context is the size that state and messages together may grow to.
	Context int
	// PatchOps is the number of operations of one patch.
	PatchOps int
	// OpenItems is the number of items (messages, calls, steps, subagents …) one run may track.
	OpenItems int
	// Warnings is the number of warnings one event may raise; more are counted into the last one.
	Warnings int
}

// DefaultLimits are the limits of a service that was not told otherwise.
func DefaultLimits() Limits {
	return Limits{
		Event:     4 << 20,
		Depth:     512,
		State:     64 << 20,
		Context:   256 << 20,
		PatchOps:  10_000,
		OpenItems: 100_000,
		Warnings:  100,
	}
}

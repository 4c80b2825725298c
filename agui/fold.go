package agui

// Fold is a thread at one version, in the form it is stored in: what Restore needs to make the Thread again.
type Fold struct {
	Version  uint64
	State    Value // nil when no entry has set a state yet, which means {}
	Messages []StoredMessage
	// Tracking is the opaque form of what the thread remembers of its runs.
	Tracking []byte
	// Input is the payload of the input entry of the run that is open, nil if it had none or no run is open.
	Input Value
}

// StoredMessage is one message of a Fold.
type StoredMessage struct {
	// Position orders the messages of a thread. Positions leave gaps.
	Position int64
	ID       string
	Role     Role
	Body     Value
}

// Changes is the difference between two folds of a thread: what must be written to bring the stored one up to date.
type Changes struct {
	// Version is the version of the newer fold.
	Version uint64
	// Upserts are the messages that are new or changed, in the order of their positions; Deletes the positions that are
	// gone, of which none is among the Upserts.
	Upserts []StoredMessage
	Deletes []int64
	// Stored is not below any position in the older fold: Upserts above it are new, and come after all messages it has.
	Stored int64
	// State is what happened to the state.
	State StateChange
	// Tracking replaces the stored one.
	Tracking []byte
}

// StateChange is what happened to a state between two folds: nothing, a replacement, or patches in their order.
type StateChange struct {
	// Replaced is the whole new state, or nil if the older state is the base of Patches.
	Replaced Value
	// Patches are the applied JSON Patch arrays, each with its version.
	Patches []StatePatch
}

// StatePatch is one JSON Patch that was applied to the state.
type StatePatch struct {
	Version uint64
	Patch   Value
}

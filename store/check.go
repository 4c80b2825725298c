package store

import "fmt"

// MaxLabelBytes is the length of the longest label that is kept; longer ones are left out, and find nothing.
const MaxLabelBytes = 1024

// MaxRemovedBytes is how much of a warning's removed text is kept.
const MaxRemovedBytes = 16 << 10

// Check reports, as ErrInvalid, what in a commit contradicts itself: its segments must lead from the expected version to
// the new one without a gap, and its fold must be of the new one. Every Store refuses a commit that fails it.
func (c *Commit) Check() error {
	at := c.ExpectVersion
	if c.Create != nil {
		at = 0
	}
	for i := range c.Segments {
		s := &c.Segments[i]
		if s.FirstVersion != at+1 || s.LastVersion < s.FirstVersion || s.NextOffset < s.FirstOffset {
			return fmt.Errorf("%w of thread %s: segment %d has versions %d to %d and offsets %d to %d after version %d",
				ErrInvalid, c.Key, i, s.FirstVersion, s.LastVersion, s.FirstOffset, s.NextOffset, at)
		}
		at = s.LastVersion
	}
	if at != c.Version {
		return fmt.Errorf("%w of thread %s: its segments end at version %d, not %d", ErrInvalid, c.Key, at, c.Version)
	}
	if c.Fold != nil && c.Fold.Version != c.Version {
		return fmt.Errorf("%w of thread %s: its fold is of version %d, not %d", ErrInvalid, c.Key, c.Fold.Version, c.Version)
	}
	return nil
}

// KeptLabels are the labels that a store keeps.
func (m Metadata) KeptLabels() []string {
	kept := make([]string, 0, len(m.Labels))
	for _, label := range m.Labels {
		if len(label) <= MaxLabelBytes {
			kept = append(kept, label)
		}
	}
	return kept
}

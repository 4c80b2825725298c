package history

import "github.com/threadsvc/threadsvc/agui/jsondoc"

// place is where a value was before a step.
type place struct {
	at jsondoc.Pointer
	// hit: the step may have changed the value, its place, or whether there is one.
	hit bool
	// begun: there was nothing that became it; the step inserted it into an array.
	begun bool
}

// before follows a value, which is at q after a step, to where it was before. The elements of an array keep what they are
// when others are inserted or removed before them; a member of an object that was set anew is still that member; what
// was moved or copied was where it came from.
func before(s *jsondoc.Step, q jsondoc.Pointer) place {
	switch s.Op {
	case "remove":
		return beforeRemoval(q, s.Path, s.Shifts)
	case "move":
		if rest, ok := q.Within(s.Path); ok {
			return place{at: s.From.Join(rest), hit: true}
		}
		p := beforeAddition(q, s.Path, s.Shifts)
		source := beforeRemoval(p.at, s.From, s.FromShifts)
		source.hit = source.hit || p.hit
		return source
	case "copy":
		if rest, ok := q.Within(s.Path); ok {
			return place{at: s.From.Join(rest), hit: true}
		}
	}
	return beforeAddition(q, s.Path, s.Shifts)
}

// beforeAddition follows q back over something put at path.
func beforeAddition(q, path jsondoc.Pointer, inserted bool) place {
	if _, ok := q.Within(path); ok {
		return place{at: q, hit: true, begun: inserted}
	}
	if _, ok := path.Within(q); ok {
		return place{at: q, hit: true}
	}
	if inserted {
		q = shift(q, path, func(i, at int) int {
			if i > at {
				return i - 1
			}
			return i
		})
	}
	return place{at: q}
}

// beforeRemoval follows q back over something taken away from path.
func beforeRemoval(q, path jsondoc.Pointer, closed bool) place {
	if !closed {
		_, within := q.Within(path)
		_, around := path.Within(q)
		return place{at: q, hit: within || around}
	}
	parent, _, _ := path.Split()
	if _, around := parent.Within(q); around {
		return place{at: q, hit: true}
	}
	return place{at: shift(q, path, func(i, at int) int {
		if i >= at {
			return i + 1
		}
		return i
	})}
}

// shift moves q if it is in the array that path is an element of.
func shift(q, path jsondoc.Pointer, move func(i, at int) int) jsondoc.Pointer {
	parent, at, _ := path.Split()
	below, ok := q.Within(parent)
	if !ok {
		return q
	}
	i, rest, ok := below.First()
	if !ok {
		return q
	}
	return parent.Index(move(i, at)).Join(rest)
}

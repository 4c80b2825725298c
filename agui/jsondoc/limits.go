package jsondoc

// Limits bound what a text or a patch can cost. A field that is zero or negative stands for its default.
type Limits struct {
	// Depth is how deep arrays and objects of a document may nest: 1 for [], 2 for [[]]. Default 512; values above
	// 9,000 mean 9,000.
	Depth int
	// Ops is the number of operations in one patch. Default 10,000.
	Ops int
	// Size is the length in bytes of a text given to Parse or ParsePatch, of the compact text a document may grow to at
	// any moment within a patch, and of all that the copies of one patch may copy. Default 64 MiB. The parsed tree takes
	// a few times that, and for texts of nothing but tiny values up to 40 times.
	Size int
	// Work is the number of bytes of the document that the operations of one patch may copy or measure, plus the
	// number of array elements they may shift; it keeps a small patch from being slow on a large document.
	// Default 256 MiB.
	Work int
}

// maxDepth keeps clear of the 10,000 levels the JSON decoder allows.
const maxDepth = 9000

// DefaultLimits returns the limits that zero fields stand for.
func DefaultLimits() Limits {
	return Limits{Depth: 512, Ops: 10_000, Size: 64 << 20, Work: 256 << 20}
}

func (l Limits) orDefaults() Limits {
	def := DefaultLimits()
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&l.Depth, def.Depth)
	set(&l.Ops, def.Ops)
	set(&l.Size, def.Size)
	set(&l.Work, def.Work)
	l.Depth = min(l.Depth, maxDepth)
	return l
}

// SetLimits replaces the limits that later patches are bounded by. A document that is larger or deeper already stays as
// it is; patches may then shrink it only.
func (d *Doc) SetLimits(lim Limits) { d.lim = lim.orDefaults() }

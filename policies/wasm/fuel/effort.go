package fuel

// effort measures how expensive a function is to compile. The engine's time grows
// with the product of any two fields, and its memory with the product of the last
// two; compilation cannot be interrupted, so it is bounded here. The values that
// blocks, branches and calls take and return use memory as well.
type effort struct {
	loops, branches, locals, values int64
}

// countValues counts the values that a block, branch or call takes and returns.
func (f *function) countValues(s signature) {
	f.effort.values += int64(len(s.params) + len(s.results))
}

func (f *function) checkEffort() {
	l := f.module.options.Limits
	for _, bound := range []struct {
		what        string
		have, limit int64
	}{
		{"loops", f.effort.loops, int64(l.Loops)},
		{"blocks and branches", f.effort.branches, int64(l.Branches)},
		{"values at blocks, branches and calls", f.effort.values, int64(l.Values)},
		{"blocks and branches times locals", f.effort.branches * f.effort.locals, int64(l.Joins)},
	} {
		if bound.have > bound.limit && f.err == nil {
			f.fail("%s has %d %s, which is over the limit of %d", f.module.nameOf(f.number), bound.have, bound.what, bound.limit)
		}
	}
}

package fuel

// effort is what makes a function expensive to compile. The engine's time
// grows with the product of any two, and its memory with that of the last two;
// compiling cannot be interrupted, so it is bounded here.
type effort struct {
	loops, branches, locals int64
}

func (f *function) checkEffort() {
	l := f.module.options.Limits
	for _, bound := range []struct {
		what        string
		have, limit int64
	}{
		{"loops", f.effort.loops, int64(l.Loops)},
		{"blocks and branches", f.effort.branches, int64(l.Branches)},
		{"blocks and branches times locals", f.effort.branches * f.effort.locals, int64(l.Joins)},
	} {
		if bound.have > bound.limit && f.fault == nil {
			f.fail("%s has %d %s, which is over the limit of %d", f.module.nameOf(f.number), bound.have, bound.what, bound.limit)
		}
	}
}

package sandbox

// SameCompilation tells whether two modules are one compilation.
func SameCompilation(a, b *Module) bool { return a.compiled == b.compiled }

// Loaded is how many modules a host holds.
func (h *Host) Loaded() int {
	h.lock.Lock()
	defer h.lock.Unlock()
	return len(h.modules)
}

// Idle is how many functions an instance keeps.
func (in *Instance) Idle() int { return len(in.idle) }

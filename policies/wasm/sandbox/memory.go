package sandbox

import (
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/experimental"
)

// memory is a guest's linear memory. It does not grow beyond its limit, and records
// attempts to do so.
type memory interface {
	experimental.LinearMemory

	snapshotter
	size() int
	limitExceeded() bool
}

// snapshotter saves and restores the content of a memory.
type snapshotter interface {
	keep(runs []run) content
	// restore restores the image's content, and zeros the rest of the memory. The
	// next Reallocate returns the image's size.
	restore(*image) error
}

// image is the state of an initialized guest.
type image struct {
	size    int // bytes of memory
	globals []uint64
	content content
}

// content is the memory of an image.
type content interface {
	runs() []run // in order
	free()
}

// free may be called on nil.
func (i *image) free() {
	if i != nil && i.content != nil {
		i.content.free()
	}
}

// MaxImage is the maximum size of initial memory that is not zeros, in bytes: each
// policy keeps it in memory.
const MaxImage = 32 << 20

// snapshot returns the instance's state, or nil if it cannot be restored: if
// initialization has changed state that is not accessible. The error is a *Refusal
// if the image is too large.
func (in *Instance) snapshot() (*image, error) {
	if in.changed.Get() != 0 {
		return nil, nil
	}
	i := &image{size: in.MemorySize()}
	for _, g := range in.globals {
		i.globals = append(i.globals, g.Get())
	}
	if in.memory == nil {
		return i, nil
	}
	data, ok := in.module.Memory().Read(0, uint32(min(i.size, 1<<32-1)))
	if !ok || len(data) != i.size {
		return nil, errors.New("read initial memory: it is too large")
	}
	runs, size := nonZero(data)
	if size > MaxImage {
		return nil, &RejectedError{Message: fmt.Sprintf("its initialization leaves %s of memory that is not zeros, which exceeds the limit of %s",
			formatBytes(int64(size)), formatBytes(MaxImage))}
	}
	i.content = in.memory.keep(runs)
	return i, nil
}

// growTo grows a new instance to the size after initialization.
func (in *Instance) growTo(i *image) error {
	if in.memory == nil {
		return nil
	}
	if _, ok := in.module.Memory().Grow(uint32((i.size - in.memory.size()) / pageSize)); !ok {
		return fmt.Errorf("grow to %d bytes: out of memory", i.size)
	}
	return nil
}

// restorable reports whether all changes of the guest can be undone.
func (in *Instance) restorable() bool { return in.changed.Get() == 0 }

func (in *Instance) restore(i *image) error {
	for n, g := range in.globals {
		g.Set(i.globals[n])
	}
	if in.memory == nil {
		return nil
	}
	if err := in.memory.restore(i); err != nil {
		return err
	}
	return in.shrinkTo(i)
}

var errNotShrunk = errors.New("the engine does not shrink memory")

// shrinkTo shrinks the memory of an instance to the image's size, since a guest can
// observe the size. The engine only supports growing, but uses the size that
// Reallocate returns: so it is asked to grow, and gets less.
func (in *Instance) shrinkTo(i *image) error {
	memory := in.module.Memory()
	if in.memory.size() == i.size {
		return nil
	}
	if _, ok := memory.Grow(1); !ok || int(memory.Size()) != i.size || in.memory.size() != i.size {
		return errNotShrunk // for example if it has grown to the module's own maximum
	}
	return nil
}

// heapMemory is memory on Go's heap, for systems without mappedMemory.
type heapMemory struct {
	buffer   []byte
	limit    uint64
	exceeded bool
	shrink   *image // the next Reallocate returns its size
}

// Reallocate implements experimental.LinearMemory.
func (m *heapMemory) Reallocate(size uint64) []byte {
	if m.shrink != nil {
		size, m.shrink = uint64(m.shrink.size), nil
	}
	if size > m.limit {
		m.exceeded = true
		return nil
	}
	if size > uint64(cap(m.buffer)) {
		// Doubled, so that growing page by page has linear cost.
		grown := make([]byte, size, min(max(size, 2*uint64(cap(m.buffer))), m.limit))
		copy(grown, m.buffer)
		m.buffer = grown
	}
	m.buffer = m.buffer[:size]
	return m.buffer[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *heapMemory) Free() { m.buffer = nil }

func (m *heapMemory) size() int           { return len(m.buffer) }
func (m *heapMemory) limitExceeded() bool { return m.exceeded }

// heapContent is a copy.
type heapContent []run

func (c heapContent) runs() []run { return c }
func (heapContent) free()         {}

func (m *heapMemory) keep(runs []run) content { return copyRuns(runs) }

// restore only writes what differs, since reading is cheaper than writing.
func (m *heapMemory) restore(i *image) error {
	at := 0
	for _, r := range i.content.runs() {
		clearPages(m.buffer[at:r.at])
		writePages(m.buffer[r.at:r.end()], r.data)
		at = r.end()
	}
	clearPages(m.buffer[at:])
	m.exceeded = false
	if len(m.buffer) > i.size {
		m.shrink = i
	}
	return nil
}

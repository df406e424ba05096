package sandbox

import (
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/experimental"
)

// memory is a guest's linear memory. It gives out no more than its limit, and
// remembers that it was asked to.
type memory interface {
	experimental.LinearMemory

	contents
	size() int
	denied() bool
}

// contents is how a memory's content is kept, and put back.
type contents interface {
	keep(runs []run) content
	// restore puts the image's content back, with zeros in all that the memory
	// is larger. The next Reallocate gives the image's size, whatever it asks for.
	restore(*image) error
}

// image is the state of a guest that has been initialised.
type image struct {
	size    int // bytes of memory
	globals []uint64
	content content
}

// content is an image's memory.
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

// MaxImage is how much memory initialization may leave that is not zeros, in
// bytes: each policy keeps that for as long as it exists.
const MaxImage = 32 << 20

// takeImage returns the instance's state, nil if it could not be put back: if
// initialisation has changed what can't be reached from outside. A *Refusal is
// one that would take too much memory.
func (in *Instance) takeImage() (*image, error) {
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
		return nil, &Refusal{Message: fmt.Sprintf("its initialization leaves %s of memory that is not zeros, which is over the limit of %s",
			bytesText(int64(size)), bytesText(MaxImage))}
	}
	i.content = in.memory.keep(runs)
	return i, nil
}

// growTo gives a new instance the size that initialisation led to.
func (in *Instance) growTo(i *image) error {
	if in.memory == nil {
		return nil
	}
	if _, ok := in.module.Memory().Grow(uint32((i.size - in.memory.size()) / pageSize)); !ok {
		return fmt.Errorf("grow to %d bytes: there is no memory", i.size)
	}
	return nil
}

// restorable tells whether all that the guest has changed can be put back.
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

var errNotShrunk = errors.New("the engine does not make a memory smaller")

// shrinkTo takes from an instance what its memory has grown, since a guest can
// see how large it is. The engine knows growing only; but it goes by the length
// that it is given, so it is told to grow, and given less.
func (in *Instance) shrinkTo(i *image) error {
	memory := in.module.Memory()
	if in.memory.size() == i.size {
		return nil
	}
	if _, ok := memory.Grow(1); !ok || int(memory.Size()) != i.size || in.memory.size() != i.size {
		return errNotShrunk // as when it has grown to the most that the module allows itself
	}
	return nil
}

// heapMemory is memory that Go manages, for want of a better one.
type heapMemory struct {
	buffer  []byte
	limit   uint64
	refused bool
	shrink  *image // the next Reallocate gives its size
}

// Reallocate implements experimental.LinearMemory.
func (m *heapMemory) Reallocate(size uint64) []byte {
	if m.shrink != nil {
		size, m.shrink = uint64(m.shrink.size), nil
	}
	if size > m.limit {
		m.refused = true
		return nil
	}
	if size > uint64(cap(m.buffer)) {
		// Doubled, so that a guest that grows page by page costs what it uses.
		grown := make([]byte, size, min(max(size, 2*uint64(cap(m.buffer))), m.limit))
		copy(grown, m.buffer)
		m.buffer = grown
	}
	m.buffer = m.buffer[:size]
	return m.buffer[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *heapMemory) Free() { m.buffer = nil }

func (m *heapMemory) size() int    { return len(m.buffer) }
func (m *heapMemory) denied() bool { return m.refused }

// heapContent is a copy.
type heapContent []run

func (c heapContent) runs() []run { return c }
func (heapContent) free()         {}

func (m *heapMemory) keep(runs []run) content { return copyRuns(runs) }

// restore writes only what differs, since reading is cheaper than writing.
func (m *heapMemory) restore(i *image) error {
	at := 0
	for _, r := range i.content.runs() {
		clearPages(m.buffer[at:r.at])
		writePages(m.buffer[r.at:r.end()], r.data)
		at = r.end()
	}
	clearPages(m.buffer[at:])
	m.refused = false
	if len(m.buffer) > i.size {
		m.shrink = i
	}
	return nil
}

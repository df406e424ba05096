package sandbox

import (
	"bytes"
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
	keep(data []byte) content
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
type content interface{ free() }

// free may be called on nil.
func (i *image) free() {
	if i != nil && i.content != nil {
		i.content.free()
	}
}

// takeImage returns the instance's state, nil if it could not be put back: if
// initialisation has changed what can't be reached from outside.
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
		return nil, errors.New("read all of it: it is too large")
	}
	i.content = in.memory.keep(data)
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
type heapContent []byte

func (heapContent) free() {}

func (m *heapMemory) keep(data []byte) content { return heapContent(bytes.Clone(data)) }

// restore writes only what differs, since reading is cheaper than writing.
func (m *heapMemory) restore(i *image) error {
	const step = 4096 // what a machine calls a page
	kept := i.content.(heapContent)
	for at := 0; at < len(kept); at += step {
		if have, want := m.buffer[at:at+step], kept[at:at+step]; !bytes.Equal(have, want) {
			copy(have, want)
		}
	}
	clear(m.buffer[len(kept):])
	m.refused = false
	if len(m.buffer) > len(kept) {
		m.shrink = i
	}
	return nil
}

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
	restore(*image) error // when the memory has the image's size
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
func (in *Instance) restorable(i *image) bool {
	return in.changed.Get() == 0 && in.MemorySize() == i.size
}

func (in *Instance) restore(i *image) error {
	for n, g := range in.globals {
		g.Set(i.globals[n])
	}
	if in.memory == nil {
		return nil
	}
	return in.memory.restore(i)
}

// heapMemory is memory that Go manages, for want of a better one.
type heapMemory struct {
	buffer  []byte
	limit   uint64
	refused bool
}

// Reallocate implements experimental.LinearMemory.
func (m *heapMemory) Reallocate(size uint64) []byte {
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
	m.refused = false
	return nil
}

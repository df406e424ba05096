package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mappedMemory is mapped for as much as it may grow to, of which the machine
// provides what is used. One that was made from an image shares the image's
// pages until it writes to them; restoring it is to let go of those it wrote to.
type mappedMemory struct {
	region  []byte
	used    int
	limit   int64
	refused bool
	shrink  *image // the next Reallocate gives its size
	entries []byte // of pagemap, room for them
}

// newMemory returns a memory with the image's content, or with zeros.
func newMemory(limit int64, from *image) memory {
	fd, flags := -1, unix.MAP_PRIVATE|unix.MAP_NORESERVE
	if from == nil {
		flags |= unix.MAP_ANON
	} else if kept, ok := from.content.(*mappedContent); ok {
		fd = int(kept.file.Fd())
	} else {
		return &heapMemory{limit: uint64(limit)}
	}
	region, err := unix.Mmap(fd, 0, int(limit), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return &heapMemory{limit: uint64(limit)} // address space may be limited
	}
	return &mappedMemory{region: region, limit: limit}
}

// Reallocate implements experimental.LinearMemory.
func (m *mappedMemory) Reallocate(size uint64) []byte {
	if m.shrink != nil {
		size, m.shrink = uint64(m.shrink.size), nil
	}
	if size > uint64(m.limit) {
		m.refused = true
		return nil
	}
	m.used = int(size)
	return m.region[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *mappedMemory) Free() {
	if m.region != nil {
		_ = unix.Munmap(m.region) // it is mapped, and so it can be unmapped
		m.region = nil
	}
}

func (m *mappedMemory) size() int    { return m.used }
func (m *mappedMemory) denied() bool { return m.refused }

// restore writes back the pages that the guest has written to. To let go of them
// all would be simpler, and has every call begin with a page fault for each; it
// is done where there are many, which are not worth keeping.
func (m *mappedMemory) restore(i *image) error {
	m.refused = false
	if m.used == 0 {
		return nil
	}
	if m.used > i.size {
		m.shrink = i
	}
	if m.writeBack(i.content.(*mappedContent)) {
		return nil
	}
	return os.NewSyscallError("madvise", unix.Madvise(m.region[:m.used], unix.MADV_DONTNEED))
}

// Bits of an entry of pagemap, which says of each page of the process where it is.
const (
	pagemapEntry   = 8 // bytes
	pagemapFile    = 1 << 61
	pagemapSwapped = 1 << 62
	pagemapPresent = 1 << 63

	mostWrittenBack = 1024 // pages
)

// writeBack restores page by page, if it can be known which, and they are few. A
// page of a private mapping that is not the file's any more has been written to.
func (m *mappedMemory) writeBack(kept *mappedContent) bool {
	pages := pagemap()
	if pages == nil {
		return false
	}
	page := os.Getpagesize()
	m.entries = slices.Grow(m.entries[:0], m.used/page*pagemapEntry)[:m.used/page*pagemapEntry]
	first := int64(uintptr(unsafe.Pointer(unsafe.SliceData(m.region)))) / int64(page)
	if _, err := pages.ReadAt(m.entries, first*pagemapEntry); err != nil {
		return false
	}
	written := 0
	for n := range m.used / page {
		entry := binary.NativeEndian.Uint64(m.entries[n*pagemapEntry:])
		if entry&pagemapSwapped == 0 && (entry&pagemapPresent == 0 || entry&pagemapFile != 0) {
			continue
		}
		if written++; written > mostWrittenBack {
			return false
		}
		kept.copyTo(m.region[n*page:][:page], n*page)
	}
	return true
}

// mappedContent is a file without a name, in memory.
type mappedContent struct {
	file *os.File
	data []byte // the file, mapped
	size int    // of the image
}

// copyTo gives a page its content, which beyond the image is zeros.
func (c *mappedContent) copyTo(page []byte, at int) {
	if at < c.size {
		copy(page, c.data[at:])
		return
	}
	clear(page)
}

func (c *mappedContent) free() {
	_ = c.file.Close()
	_ = unix.Munmap(c.data)
}

// keep makes a copy that Go manages if there can be no file.
func (m *mappedMemory) keep(data []byte) content {
	fd, err := unix.MemfdCreate("gleaner-wasm", unix.MFD_CLOEXEC)
	if err != nil {
		return heapContent(bytes.Clone(data))
	}
	c := &mappedContent{file: os.NewFile(uintptr(fd), "gleaner-wasm"), size: len(data)}
	_, err = c.file.Write(data)
	// Beyond what is written it reads as zeros, up to what a guest may grow to.
	err = errors.Join(err, c.file.Truncate(m.limit))
	if err == nil {
		c.data, err = unix.Mmap(fd, 0, max(len(data), 1), unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		_ = c.file.Close()
		return heapContent(bytes.Clone(data))
	}
	return c
}

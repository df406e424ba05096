package sandbox

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mappedMemory reserves address space up to its limit; the kernel provides the
// pages that are used. A memory that is created from an image shares the image's
// pages until it writes to them, and reads zeros elsewhere, which use no memory.
// Restoring it discards the pages that it wrote to.
type mappedMemory struct {
	region   []byte
	used     int
	limit    int64
	exceeded bool
	shrink   *image // the next Reallocate returns its size
	entries  []byte // buffer for entries of pagemap
}

// newMemory returns a memory with the image's content, or zeros.
func newMemory(limit int64, from *image) memory {
	onHeap := &heapMemory{limit: uint64(limit)}
	var kept *mappedContent
	if from != nil {
		var ok bool
		if kept, ok = from.content.(*mappedContent); !ok {
			return onHeap
		}
	}
	const protection = unix.PROT_READ | unix.PROT_WRITE
	region, err := unix.Mmap(-1, 0, int(limit), protection, unix.MAP_PRIVATE|unix.MAP_NORESERVE|unix.MAP_ANON)
	if err != nil {
		return onHeap // address space may be limited
	}
	if kept == nil {
		return &mappedMemory{region: region, limit: limit}
	}
	offset := 0
	for _, r := range kept.all {
		_, err := unix.MmapPtr(int(kept.file.Fd()), int64(offset), unsafe.Pointer(&region[r.at]), uintptr(len(r.data)),
			protection, unix.MAP_PRIVATE|unix.MAP_NORESERVE|unix.MAP_FIXED)
		if err != nil {
			_ = unix.Munmap(region)
			return onHeap // there may be too many mappings
		}
		offset += len(r.data)
	}
	return &mappedMemory{region: region, limit: limit}
}

// Reallocate implements experimental.LinearMemory.
func (m *mappedMemory) Reallocate(size uint64) []byte {
	if m.shrink != nil {
		size, m.shrink = uint64(m.shrink.size), nil
	}
	if size > uint64(m.limit) {
		m.exceeded = true
		return nil
	}
	m.used = int(size)
	return m.region[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *mappedMemory) Free() {
	if m.region != nil {
		_ = unix.Munmap(m.region) // never fails for a mapped region
		m.region = nil
	}
}

func (m *mappedMemory) size() int           { return m.used }
func (m *mappedMemory) limitExceeded() bool { return m.exceeded }

// restore writes back the pages that the guest has written to. Discarding all of
// them would be simpler, but cause a page fault for each in the next call; it is
// done if there are too many to write back.
func (m *mappedMemory) restore(i *image) error {
	m.exceeded = false
	if m.used == 0 {
		return nil
	}
	if m.used > i.size {
		m.shrink = i
	}
	if m.writeBack(i.content.(*mappedContent)) { // newMemory ensures the type
		return nil
	}
	return os.NewSyscallError("madvise", unix.Madvise(m.region[:m.used], unix.MADV_DONTNEED))
}

// Bits of an entry of pagemap, which describes each page of the process.
const (
	pagemapEntry   = 8 // bytes
	pagemapFile    = 1 << 61
	pagemapSwapped = 1 << 62
	pagemapPresent = 1 << 63

	maxWrittenBack = 1024 // pages
)

// writeBack restores single pages, if the written pages are known and few. A page
// of a private mapping that is no longer backed by the file has been written to, or
// is a zero page that was read.
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
	written, runs := 0, kept.all
	for n := range m.used / page {
		entry := binary.NativeEndian.Uint64(m.entries[n*pagemapEntry:])
		if entry&pagemapSwapped == 0 && (entry&pagemapPresent == 0 || entry&pagemapFile != 0) {
			continue
		}
		if written++; written > maxWrittenBack {
			return false
		}
		at := n * page
		for len(runs) > 0 && runs[0].end() <= at {
			runs = runs[1:]
		}
		if len(runs) > 0 && runs[0].at <= at {
			copy(m.region[at:at+page], runs[0].data[at-runs[0].at:])
		} else {
			clearPages(m.region[at : at+page])
		}
	}
	return true
}

// mappedContent is an anonymous file in memory, with the runs one after another.
type mappedContent struct {
	file *os.File
	data []byte // the file, mapped
	all  []run  // parts of data
}

func (c *mappedContent) runs() []run { return c.all }

func (c *mappedContent) free() {
	_ = c.file.Close()
	_ = unix.Munmap(c.data)
}

// keep returns a copy on Go's heap if a file cannot be created.
func (m *mappedMemory) keep(runs []run) content {
	fd, err := unix.MemfdCreate("gleaner-wasm", unix.MFD_CLOEXEC)
	if err != nil {
		return copyRuns(runs)
	}
	c := &mappedContent{file: os.NewFile(uintptr(fd), "gleaner-wasm")}
	size := 0
	for _, r := range runs {
		_, failed := c.file.Write(r.data)
		err = errors.Join(err, failed)
		size += len(r.data)
	}
	if err == nil {
		c.data, err = unix.Mmap(fd, 0, max(size, 1), unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		_ = c.file.Close()
		return copyRuns(runs)
	}
	offset := 0
	for _, r := range runs {
		c.all = append(c.all, run{r.at, c.data[offset : offset+len(r.data)]})
		offset += len(r.data)
	}
	return c
}

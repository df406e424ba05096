// Package pagecheck checks the pages of a bbolt file before bbolt reads them, which trusts
// them: a flipped bit could make it panic, follow a cycle until the stack overflows, or
// overwrite pages that are in use.
//
// It checks structure: page numbers, bounds, the order of keys, and free pages. It does not
// check the contents of values, and it knows only files of buckets that have no buckets.
package pagecheck

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// ErrDamaged means that a file is not a sound bbolt file.
var ErrDamaged = errors.New("file is damaged")

const (
	magic       = 0xED0CDAED
	version     = 2
	metaSize    = 64
	headerSize  = 16 // of a page
	elementSize = 16
	bucketSize  = 16

	branchFlag   = 0x01
	leafFlag     = 0x02
	freelistFlag = 0x10
	bucketFlag   = 0x01 // of an element

	minPageSize, maxPageSize = 1 << 10, 1 << 16
)

// A Report says what was found in a sound file.
type Report struct {
	// Torn means that one of the two meta pages is invalid: the last write was not completed,
	// and bbolt continues with what was committed before it.
	Torn bool
}

// Check reads the structure of a file of this size in bytes. The error is ErrDamaged, or that
// of the reader. Only page headers and elements are read, not large values.
func Check(r io.ReaderAt, size int64) (Report, error) {
	m, report, err := readMeta(r, size)
	if err != nil {
		return report, err
	}
	if m.pages < 2 || m.pages > uint64(size)/uint64(m.pageSize) {
		return report, damaged("the file has %d bytes, and its pages would need %d of %d", size, m.pages, m.pageSize)
	}
	c := &checker{r: r, meta: m, used: make([]uint64, m.pages/64+1)}
	c.use(0, 2)
	if err := c.walk(page{id: m.root, buckets: true}); err != nil {
		return report, err
	}
	return report, c.freelist()
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// meta is what the newest valid meta page says.
type meta struct {
	pageSize             uint32
	root, freelist, txid uint64
	pages                uint64 // number of pages, of which the first ones are in use
}

// readMeta finds the meta pages as bbolt does: the second is where the page size of the first
// says, or where one is.
func readMeta(r io.ReaderAt, size int64) (meta, Report, error) {
	first, firstValid, err := metaAt(r, 0)
	if err != nil {
		return meta{}, Report{}, err
	}
	if firstValid {
		second, secondValid, err := metaAt(r, int64(first.pageSize))
		if err != nil {
			return meta{}, Report{}, err
		}
		if secondValid && second.pageSize == first.pageSize && second.txid > first.txid {
			first = second
		}
		return first, Report{Torn: !secondValid}, nil
	}
	for at := int64(minPageSize); at <= maxPageSize && at < size; at <<= 1 {
		second, valid, err := metaAt(r, at)
		if err != nil {
			return meta{}, Report{}, err
		}
		if valid && int64(second.pageSize) == at {
			return second, Report{Torn: true}, nil
		}
	}
	return meta{}, Report{}, damaged("neither of its two meta pages is valid")
}

func metaAt(r io.ReaderAt, at int64) (m meta, valid bool, err error) {
	var data [headerSize + metaSize]byte
	if _, err := r.ReadAt(data[:], at); errors.Is(err, io.EOF) {
		return meta{}, false, nil
	} else if err != nil {
		return meta{}, false, fmt.Errorf("read meta page: %w", err)
	}
	d := data[headerSize:]
	sum := fnv.New64a()
	_, _ = sum.Write(d[:metaSize-8])
	m = meta{
		pageSize: binary.NativeEndian.Uint32(d[8:]), root: binary.NativeEndian.Uint64(d[16:]), freelist: binary.NativeEndian.Uint64(d[32:]),
		pages: binary.NativeEndian.Uint64(d[40:]), txid: binary.NativeEndian.Uint64(d[48:]),
	}
	valid = binary.NativeEndian.Uint32(d) == magic && binary.NativeEndian.Uint32(d[4:]) == version &&
		binary.NativeEndian.Uint64(d[56:]) == sum.Sum64() &&
		m.pageSize >= minPageSize && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
	return m, valid, nil
}

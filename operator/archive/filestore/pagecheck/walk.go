package pagecheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const maxKeySize = 1 << 15 // as bbolt has it

// A checker walks the pages of one file.
type checker struct {
	r    io.ReaderAt
	meta meta
	used []uint64 // a bit for each page
}

// A page is to be visited. Its keys are from min on, and below max if that is not nil.
type page struct {
	id       uint64
	buckets  bool // its leaves are buckets, not values
	min, max []byte
}

// use marks pages, and reports whether none of them was marked before.
func (c *checker) use(id, count uint64) bool {
	if id >= c.meta.pages || count > c.meta.pages-id {
		return false
	}
	fresh := true
	for p := id; p < id+count; p++ {
		fresh = fresh && c.used[p/64]&(1<<(p%64)) == 0
		c.used[p/64] |= 1 << (p % 64)
	}
	return fresh
}

// walk visits a page and all below it, each once: without recursion, so that no file makes it deep.
func (c *checker) walk(root page) error {
	pending := []page{root}
	for len(pending) > 0 {
		p := pending[len(pending)-1]
		below, err := c.visit(p)
		if err != nil {
			return err
		}
		pending = append(pending[:len(pending)-1], below...)
	}
	return nil
}

// visit checks a page, and returns those below it.
func (c *checker) visit(p page) ([]page, error) {
	n, err := c.header(p.id)
	if err != nil {
		return nil, err
	}
	return c.elements(p, n)
}

// A node is the content of a branch or leaf page, or of one within a value.
type node struct {
	flags, count uint16
	at           int64 // where its header begins in the file
	size         int64 // with its header
	data         []byte
}

// header reads a page as far as its first page size goes.
func (c *checker) header(id uint64) (node, error) {
	at, size := int64(id)*int64(c.meta.pageSize), int64(c.meta.pageSize)
	if id >= c.meta.pages {
		return node{}, damaged("page %d of %d is referred to", id, c.meta.pages)
	}
	data := make([]byte, size)
	if _, err := c.r.ReadAt(data, at); err != nil && !errors.Is(err, io.EOF) {
		return node{}, fmt.Errorf("read page %d: %w", id, err)
	}
	count := uint64(binary.NativeEndian.Uint32(data[12:])) + 1
	if own := binary.NativeEndian.Uint64(data); own != id {
		return node{}, damaged("page %d has number %d", id, own)
	}
	if !c.use(id, count) {
		return node{}, damaged("page %d with %d pages is used twice, or ends after the file", id, count)
	}
	return node{
		flags: binary.NativeEndian.Uint16(data[8:]), count: binary.NativeEndian.Uint16(data[10:]),
		at: at, size: int64(count) * size, data: data,
	}, nil
}

// slice returns bytes of a node, from what was read if they are there.
func (c *checker) slice(n node, from, length int64) ([]byte, error) {
	if from < 0 || length < 0 || from > n.size || length > n.size-from {
		return nil, damaged("an element is outside its page")
	}
	if from+length <= int64(len(n.data)) {
		return n.data[from : from+length], nil
	}
	data := make([]byte, length)
	if _, err := c.r.ReadAt(data, n.at+from); err != nil {
		return nil, fmt.Errorf("read page: %w", err)
	}
	return data, nil
}

// elements checks the elements of a node, whose keys ascend.
func (c *checker) elements(p page, n node) ([]page, error) {
	if n.flags != branchFlag && n.flags != leafFlag {
		return nil, damaged("page %d has type %#x", p.id, n.flags)
	}
	if n.flags == branchFlag && n.count == 0 {
		return nil, damaged("branch page %d is empty", p.id)
	}
	table, err := c.slice(n, headerSize, int64(n.count)*elementSize)
	if err != nil {
		return nil, err
	}
	var below []page
	last := p.min
	for i := range int(n.count) {
		e := table[i*elementSize:][:elementSize]
		key, err := c.key(n, int64(headerSize+i*elementSize), e)
		if err != nil {
			return nil, err
		}
		if order := bytes.Compare(key, last); order < 0 || order == 0 && i > 0 || p.max != nil && bytes.Compare(key, p.max) >= 0 {
			return nil, damaged("keys of page %d are not in order", p.id)
		}
		last = bytes.Clone(key)
		if below, err = c.element(p, n, i, e, last, below); err != nil {
			return nil, err
		}
	}
	return below, nil
}

// element checks one element of a node, and appends the pages below it.
func (c *checker) element(p page, n node, i int, e, key []byte, below []page) ([]page, error) {
	if n.flags == leafFlag {
		buckets, err := c.leaf(p, n, int64(headerSize+i*elementSize), e)
		return append(below, buckets...), err
	}
	if i > 0 {
		below[i-1].max = key
	}
	return append(below, page{id: binary.NativeEndian.Uint64(e[8:]), buckets: p.buckets, min: key, max: p.max}), nil
}

// key returns the key of an element, whose position is relative to the element.
func (c *checker) key(n node, at int64, e []byte) ([]byte, error) {
	position, size := binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:])
	if n.flags == leafFlag {
		position, size = binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:])
	}
	if size > maxKeySize || int64(position) < elementSize {
		return nil, damaged("a key has %d bytes at %d", size, position)
	}
	return c.slice(n, at+int64(position), int64(size))
}

// leaf checks the value of an element, and returns the root page of a bucket.
func (c *checker) leaf(p page, n node, at int64, e []byte) ([]page, error) {
	flags, position := binary.NativeEndian.Uint32(e), int64(binary.NativeEndian.Uint32(e[4:]))
	from, size := at+position+int64(binary.NativeEndian.Uint32(e[8:])), int64(binary.NativeEndian.Uint32(e[12:]))
	if from > n.size || size > n.size-from {
		return nil, damaged("a value of page %d ends outside it", p.id)
	}
	if isBucket := flags == bucketFlag; isBucket != p.buckets || !isBucket && flags != 0 {
		return nil, damaged("an element of page %d has type %#x", p.id, flags)
	}
	if !p.buckets {
		return nil, nil
	}
	if size < bucketSize {
		return nil, damaged("a bucket of page %d has %d bytes", p.id, size)
	}
	value, err := c.slice(n, from, min(size, int64(c.meta.pageSize)))
	if err != nil {
		return nil, err
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return []page{{id: root}}, nil
	}
	return nil, c.inline(p, value[bucketSize:])
}

// inline checks the page of a small bucket, which is in its value.
func (c *checker) inline(p page, data []byte) error {
	if len(data) < headerSize {
		return damaged("a bucket of page %d has no page", p.id)
	}
	n := node{
		flags: binary.NativeEndian.Uint16(data[8:]), count: binary.NativeEndian.Uint16(data[10:]),
		size: int64(len(data)), data: data,
	}
	if n.flags != leafFlag {
		return damaged("a bucket within page %d has type %#x", p.id, n.flags)
	}
	_, err := c.elements(page{id: p.id}, n)
	return err
}

const (
	noFreelist = ^uint64(0)
	manyFree   = 0xFFFF // the count is in the first element
)

// freelist checks that no page is both free and in use.
func (c *checker) freelist() error {
	if c.meta.freelist == noFreelist {
		return nil
	}
	n, err := c.header(c.meta.freelist)
	if err != nil {
		return err
	}
	if n.flags != freelistFlag {
		return damaged("the list of free pages has type %#x", n.flags)
	}
	from, count := int64(headerSize), int64(n.count)
	if count == manyFree {
		first, err := c.slice(n, from, 8)
		if err != nil {
			return err
		}
		from, count = from+8, int64(binary.NativeEndian.Uint64(first))
	}
	if count < 0 || count > int64(c.meta.pages) {
		return damaged("it has %d free pages of %d", count, c.meta.pages)
	}
	list, err := c.slice(n, from, count*8)
	if err != nil {
		return err
	}
	for i := range int(count) {
		if id := binary.NativeEndian.Uint64(list[i*8:]); !c.use(id, 1) {
			return damaged("page %d is free and in use", id)
		}
	}
	return nil
}

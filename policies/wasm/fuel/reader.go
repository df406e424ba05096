package fuel

import (
	"fmt"
	"unicode/utf8"
)

// reader reads a part of a module. After the first error it returns zeros, so that
// only loops and results need to check for errors. Nothing is allocated by an
// unchecked count: count checks each against the remaining bytes.
type reader struct {
	data []byte
	pos  int
	base int // where data begins in the module, for messages
	err  *RejectedError
}

// fail sets the error, unless there is one.
func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &RejectedError{Message: fmt.Sprintf(format, args...)}
	}
	r.pos = len(r.data)
}

// unsupported rejects a feature.
func (r *reader) unsupported(feature string) {
	r.fail("it uses %s, which are not supported", feature)
}

// takeError takes over the error of a part's reader.
func (r *reader) takeError(part *reader) {
	if part.err != nil && r.err == nil {
		r.err = part.err
		r.pos = len(r.data)
	}
}

func (r *reader) offset() int { return r.base + r.pos }

// more reports whether there are bytes left.
func (r *reader) more() bool { return r.pos < len(r.data) }

func (r *reader) truncated() {
	r.fail("the module is cut short or damaged: it ends too early at offset %#x", r.base+len(r.data))
}

func (r *reader) byte() byte {
	if r.pos >= len(r.data) {
		r.truncated()
		return 0
	}
	b := r.data[r.pos]
	r.pos++
	return b
}

// bytes returns the next n bytes, which share the module's memory.
func (r *reader) bytes(n uint32) []byte {
	if uint64(n) > uint64(len(r.data)-r.pos) {
		r.truncated()
		return nil
	}
	end := r.pos + int(n)
	b := r.data[r.pos:end:end] // so that what is appended to it does not go into the module
	r.pos += int(n)
	return b
}

// part returns a reader of the next n bytes.
func (r *reader) part(n uint32) *reader {
	at := r.offset()
	data := r.bytes(n)
	return &reader{data: data, base: at, err: r.err}
}

// unsigned reads an unsigned LEB128 number. Longer encodings than its bits require
// are rejected, as in the specification.
func (r *reader) unsigned(bits uint) uint64 {
	at := r.offset()
	var n uint64
	for shift := uint(0); shift < bits; shift += 7 {
		b := r.byte()
		if r.err != nil {
			return 0 // and not what has been read of it
		}
		left := bits - shift
		if left < 7 && b>>left != 0 {
			break
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
	r.fail("the number at offset %#x has more than %d bits", at, bits)
	return 0
}

// signed reads a signed LEB128 number.
func (r *reader) signed(bits uint) int64 {
	at := r.offset()
	var n int64
	for shift := uint(0); shift < bits; shift += 7 {
		b := r.byte()
		if r.err != nil {
			return 0
		}
		if left := bits - shift; left < 7 {
			// What does not fit has to repeat the sign.
			sign := int8(b<<1) >> left
			if b >= 0x80 || (sign != 0 && sign != -1) {
				break
			}
		}
		n |= int64(b&0x7f) << shift
		if b < 0x80 {
			if b&0x40 != 0 && shift+7 < 64 {
				n |= -1 << (shift + 7)
			}
			return n
		}
	}
	r.fail("the number at offset %#x has more than %d bits", at, bits)
	return 0
}

func (r *reader) u32() uint32 { return uint32(r.unsigned(32)) }

// count reads the number of entries that follow, each of at least one byte.
func (r *reader) count(what string, limit int) int {
	at := r.offset()
	n := r.u32()
	if r.err != nil {
		return 0
	}
	if int64(n) > int64(limit) {
		r.fail("it has %d %s, which is over the limit of %d", n, what, limit)
		return 0
	}
	if int64(n) > int64(len(r.data)-r.pos) {
		r.fail("the module is cut short or damaged: at offset %#x it announces %d %s, which don't fit in what follows", at, n, what)
		return 0
	}
	return int(n)
}

// sectionCount reads the number of entries of another section.
func (r *reader) sectionCount(what string, limit int) int {
	n := r.u32()
	if int64(n) > int64(limit) {
		r.fail("it has %d %s, which is over the limit of %d", n, what, limit)
		return 0
	}
	return int(n)
}

// checkLimit fails if a limit is exceeded.
func (r *reader) checkLimit(what string, n, limit int) {
	if n > limit {
		r.fail("it has %d %s, which is over the limit of %d", n, what, limit)
	}
}

func (r *reader) name() string {
	at := r.offset()
	b := r.bytes(r.u32())
	if !utf8.Valid(b) {
		r.fail("the name at offset %#x is not UTF-8", at)
		return ""
	}
	return string(b)
}

// index reads an index into a list of this length. Larger indexes may exist after
// rewriting, so this check protects the counter from the module.
func (r *reader) index(what string, of int) uint32 {
	at := r.offset()
	i := r.u32()
	if r.err == nil && int64(i) >= int64(of) {
		r.fail("at offset %#x it uses %s %d, and has only %d", at, what, i, of)
		return 0
	}
	return i
}

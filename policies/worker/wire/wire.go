// Package wire is the protocol between the operator and its worker processes: requests
// and replies as frames on a byte stream, one reply for each request.
//
// A frame is a length of four bytes, a kind of one byte, four bytes by which a reply names
// its request, and a payload. Numbers are little endian. Byte strings and lists are preceded by their length in four bytes. Neither side
// trusts the other: a length is checked against a limit before memory is allocated for it.
//
// It does not manage processes, and does not interpret messages.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Kind is the kind of a frame's message.
type Kind uint8

// The kinds of frames. All but KindReply go to the worker.
const (
	KindCompile Kind = iota + 1
	KindLoad
	KindStart
	KindEvaluate
	KindReply
)

const headerSize = 9

// Limits of frames, in bytes.
const (
	MaxRequest = 80 << 20 // a module as large as may be fetched, and its names
	MaxReply   = 80 << 20 // a compiled module
)

// maxElements is the maximum length of every list, since elements use more memory
// than their bytes in a frame.
const maxElements = 4096

// ErrMalformed is a frame that does not follow the protocol.
var ErrMalformed = errors.New("malformed frame")

// Message is a message in a frame.
type Message interface {
	kind() Kind
	encode(*encoder)
	decode(*decoder)
}

// Write writes one frame, with an ID that a reply shares with its request. The
// buffer is reused, and returned for the next call.
func Write(w io.Writer, id uint32, m Message, buffer []byte) ([]byte, error) {
	e := encoder{append(buffer[:0], 0, 0, 0, 0, byte(m.kind()))}
	e.u32(id)
	m.encode(&e)
	binary.LittleEndian.PutUint32(e.data, uint32(len(e.data)-headerSize))
	_, err := w.Write(e.data)
	return e.data, err
}

// Frame is a frame that has been read.
type Frame struct {
	Kind    Kind
	ID      uint32
	Payload []byte // valid until the buffer is used again
}

// Reader reads frames from a stream. The zero value is ready. Its memory is used for all of
// them, so a frame is valid until the next call.
type Reader struct {
	buffer   []byte
	received int // bytes of the frame that is being read
}

// Read reads one frame of at most max bytes. The error is ErrMalformed, or that of
// the stream. After a timeout of the stream it can be called again to continue.
func (r *Reader) Read(from io.Reader, max int) (f Frame, err error) {
	if cap(r.buffer) < headerSize {
		r.buffer = make([]byte, 64<<10)
	}
	r.buffer = r.buffer[:cap(r.buffer)]
	for r.received < headerSize {
		if err := r.fill(from, len(r.buffer)); err != nil {
			return f, err
		}
	}
	size := int(binary.LittleEndian.Uint32(r.buffer))
	total := headerSize + size
	if size > max || r.received > total {
		return f, fmt.Errorf("%w: %d bytes announced, %d received, at most %d allowed", ErrMalformed, size, r.received-headerSize, max)
	}
	// Memory is allocated as bytes arrive, so that a length alone costs nothing.
	for r.received < total {
		if r.received == len(r.buffer) {
			grown := make([]byte, min(2*len(r.buffer), total))
			copy(grown, r.buffer)
			r.buffer = grown
		}
		if err := r.fill(from, min(len(r.buffer), total)); err != nil {
			return f, err
		}
	}
	r.received = 0
	return Frame{Kind(r.buffer[4]), binary.LittleEndian.Uint32(r.buffer[5:]), r.buffer[headerSize:total]}, nil
}

// fill reads available bytes, up to a length of the buffer.
func (r *Reader) fill(from io.Reader, to int) error {
	n, err := from.Read(r.buffer[r.received:to])
	r.received += n
	switch {
	case n > 0:
		return nil // an error comes again
	case errors.Is(err, io.EOF) && r.received > 0:
		return io.ErrUnexpectedEOF
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// Trim frees the memory of unusually large frames.
func (r *Reader) Trim(keep int) {
	if cap(r.buffer) > keep && r.received == 0 {
		r.buffer = nil
	}
}

// Memory returns the size of the buffer in bytes.
func (r *Reader) Memory() int { return cap(r.buffer) }

// Decode reads the payload into a message of the same kind. Byte strings share the
// payload's memory.
func (f Frame) Decode(into Message) error {
	if f.Kind != into.kind() {
		return fmt.Errorf("%w: kind %d where kind %d is expected", ErrMalformed, f.Kind, into.kind())
	}
	d := decoder{data: f.Payload}
	into.decode(&d)
	if d.failed || len(d.data) != 0 {
		return fmt.Errorf("%w: a payload of kind %d with %d bytes", ErrMalformed, f.Kind, len(f.Payload))
	}
	return nil
}

type encoder struct{ data []byte }

func (e *encoder) u8(v uint8)   { e.data = append(e.data, v) }
func (e *encoder) u32(v uint32) { e.data = binary.LittleEndian.AppendUint32(e.data, v) }
func (e *encoder) i64(v int64)  { e.data = binary.LittleEndian.AppendUint64(e.data, uint64(v)) }

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

func (e *encoder) bytes(v []byte) {
	e.u32(uint32(len(v)))
	e.data = append(e.data, v...)
}

func (e *encoder) text(v string) {
	e.u32(uint32(len(v)))
	e.data = append(e.data, v...)
}

func (e *encoder) texts(v []string) {
	e.u32(uint32(len(v)))
	for _, s := range v {
		e.text(s)
	}
}

// decoder decodes values. After an error all values are zero.
type decoder struct {
	data   []byte
	failed bool
}

func (d *decoder) take(n int) []byte {
	if d.failed || n > len(d.data) {
		d.failed, d.data = true, nil
		return nil
	}
	taken := d.data[:n:n]
	d.data = d.data[n:]
	return taken
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) i64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

func (d *decoder) bool() bool {
	v := d.u8()
	d.failed = d.failed || v > 1
	return v == 1
}

func (d *decoder) bytes() []byte { return d.take(d.count(1)) }
func (d *decoder) text() string  { return string(d.bytes()) }

// count reads the length of a list whose elements take at least size bytes each.
func (d *decoder) count(size int) int {
	n := int(d.u32())
	if n > len(d.data)/size || size > 1 && n > maxElements {
		d.failed, d.data = true, nil
		return 0
	}
	return n
}

func (d *decoder) texts() []string {
	n := d.count(4)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.text())
	}
	return list
}

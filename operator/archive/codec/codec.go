// Package codec encodes headers and records for stores, with checksums: what is decoded is
// what was encoded, and anything else is archive.ErrCorrupt.
//
// It knows no storage.
package codec

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

const sumLength = 8

// WithChecksum returns a payload after its checksum.
func WithChecksum(payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return append(sum[:sumLength:sumLength], payload...)
}

// Verified returns the payload of WithChecksum. It shares memory with data.
func Verified(data []byte) ([]byte, error) {
	if len(data) < sumLength {
		return nil, fmt.Errorf("%w: %d bytes are too short for a checksum", archive.ErrCorrupt, len(data))
	}
	sum := sha256.Sum256(data[sumLength:])
	if !bytes.Equal(sum[:sumLength], data[:sumLength]) {
		return nil, fmt.Errorf("%w: checksum does not match", archive.ErrCorrupt)
	}
	return data[sumLength:], nil
}

// The first byte of what may be compressed.
const (
	plain      = 0
	compressed = 1
)

// pack compresses data if it then is smaller, and adds a checksum.
func pack(data []byte) ([]byte, error) {
	small, err := archive.Compress(data)
	if err != nil {
		return nil, err
	}
	if len(small) < len(data) {
		return WithChecksum(append([]byte{compressed}, small...)), nil
	}
	return WithChecksum(append([]byte{plain}, data...)), nil
}

func unpack(data []byte) ([]byte, error) {
	payload, err := Verified(data)
	if err != nil {
		return nil, err
	}
	if len(payload) == 0 {
		return nil, fmt.Errorf("%w: it is empty", archive.ErrCorrupt)
	}
	switch payload[0] {
	case plain:
		return payload[1:], nil
	case compressed:
		return archive.Decompress(payload[1:])
	}
	return nil, fmt.Errorf("%w: encoding %d is unknown", archive.ErrCorrupt, payload[0])
}

// EncodeHeader encodes a header.
func EncodeHeader(h archive.Header) ([]byte, error) {
	data, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode header: %w", err)
	}
	return pack(data)
}

// DecodeHeader decodes a header. It shares no memory with data.
func DecodeHeader(data []byte) (archive.Header, error) {
	text, err := unpack(data)
	if err != nil {
		return archive.Header{}, fmt.Errorf("decode header: %w", err)
	}
	var h archive.Header
	if err := json.Unmarshal(text, &h); err != nil {
		return archive.Header{}, fmt.Errorf("decode header: %w: %w", archive.ErrCorrupt, err)
	}
	return h, nil
}

const recordFixed = 8 + 2 // time, and length of the UID

// EncodeRecord encodes a record that is valid.
func EncodeRecord(r archive.Record) ([]byte, error) {
	data := make([]byte, 0, recordFixed+len(r.UID)+len(r.JSON))
	data = binary.BigEndian.AppendUint64(data, uint64(r.Time.UnixNano()))
	data = binary.BigEndian.AppendUint16(data, uint16(len(r.UID)))
	data = append(data, r.UID...)
	return pack(append(data, r.JSON...))
}

// DecodeRecord decodes a record. It shares no memory with data.
func DecodeRecord(data []byte) (archive.Record, error) {
	raw, err := unpack(data)
	if err != nil {
		return archive.Record{}, fmt.Errorf("decode record: %w", err)
	}
	if len(raw) < recordFixed {
		return archive.Record{}, fmt.Errorf("decode record: %w: %d bytes are too short", archive.ErrCorrupt, len(raw))
	}
	end := recordFixed + int(binary.BigEndian.Uint16(raw[8:]))
	if len(raw) < end {
		return archive.Record{}, fmt.Errorf("decode record: %w: UID is longer than the record", archive.ErrCorrupt)
	}
	return archive.Record{
		Time: time.Unix(0, int64(binary.BigEndian.Uint64(raw))).UTC(),
		UID:  types.UID(raw[recordFixed:end]),
		JSON: bytes.Clone(raw[end:]),
	}, nil
}

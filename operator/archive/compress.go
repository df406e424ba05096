package archive

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Coders are shared, and at most coderConcurrency of each work at the same time: each has
// buffers of about a megabyte.
const coderConcurrency = 4

var encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil,
		zstd.WithEncoderConcurrency(coderConcurrency), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false)) // bodies have a digest
})

var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(coderConcurrency), zstd.WithDecoderMaxMemory(MaxObjectBytes),
		zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecodeAllCapLimit(false))
})

// Compress compresses with zstd. Equal data gives equal results within one version.
func Compress(data []byte) ([]byte, error) {
	e, err := encoder()
	if err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}
	return e.EncodeAll(data, make([]byte, 0, len(data)/4+64)), nil
}

// Decompress reverses Compress. The error is ErrTooLarge if the result would be above
// MaxObjectBytes, which it does not allocate, and otherwise ErrCorrupt.
func Decompress(data []byte) ([]byte, error) {
	d, err := decoder()
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	plain, err := d.DecodeAll(data, nil)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, fmt.Errorf("decompress: above %d bytes: %w", MaxObjectBytes, ErrTooLarge)
	case err != nil:
		return nil, fmt.Errorf("decompress: %w: %w", ErrCorrupt, err)
	}
	return plain, nil
}

package wasm

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Decompress returns a module that may have been compressed with gzip. One that
// would be larger than the limit is refused before it is in memory. The error is
// a *Refusal.
func Decompress(data []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		if len(data) > limit {
			return nil, tooLarge(limit)
		}
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, damaged(err)
	}
	code, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if len(code) > limit {
		return nil, tooLarge(limit)
	}
	if err != nil {
		return nil, damaged(err)
	}
	return code, nil
}

func tooLarge(limit int) *Refusal {
	return &Refusal{Message: fmt.Sprintf("it is larger than the limit of %d bytes", limit)}
}

func damaged(err error) *Refusal {
	return &Refusal{Message: fmt.Sprintf("it is compressed with gzip, and damaged: %v", err)}
}

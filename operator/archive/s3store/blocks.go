package s3store

import (
	"bytes"
	"sync"
)

const maxBlockBytes = 32 << 20

// blocks caches headers and records of segments, as they are stored, up to maxBlockBytes.
type blocks struct {
	mu    sync.Mutex // covers all
	data  map[uint64][]byte
	order []uint64 // the oldest first
	bytes int
}

func newBlocks() *blocks { return &blocks{data: map[uint64][]byte{}} }

func (b *blocks) get(number uint64) ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.data[number]
	return data, ok
}

// put copies data, and evicts the oldest above the limit.
func (b *blocks) put(number uint64, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.data[number]; ok || len(data) > maxBlockBytes/4 {
		return
	}
	b.data[number] = bytes.Clone(data)
	b.order = append(b.order, number)
	b.bytes += len(data)
	for b.bytes > maxBlockBytes {
		b.bytes -= len(b.data[b.order[0]])
		delete(b.data, b.order[0])
		b.order = b.order[1:]
	}
}

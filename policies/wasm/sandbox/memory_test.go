package sandbox

import (
	"bytes"
	"testing"
)

// memories are all kinds of memory that this machine has, with three pages.
func memories(limit int64) map[string]memory {
	return map[string]memory{
		"Go's":          &heapMemory{limit: uint64(limit)},
		"the machine's": newMemory(limit, nil),
	}
}

func TestAMemoryEndsAtItsLimit(t *testing.T) {
	for name, m := range memories(3 * pageSize) {
		t.Run(name, func(t *testing.T) {
			defer m.Free()
			if got := m.Reallocate(pageSize); len(got) != pageSize || m.limitExceeded() {
				t.Fatalf("it has %d bytes", len(got))
			}
			copy(m.Reallocate(2*pageSize), "text")
			if got := m.Reallocate(3 * pageSize); string(got[:5]) != "text\x00" || m.size() != 3*pageSize {
				t.Errorf("it begins with %q and has %d bytes", got[:5], m.size())
			}
			if got := m.Reallocate(4 * pageSize); got != nil || !m.limitExceeded() || m.size() != 3*pageSize {
				t.Errorf("it grew to %d bytes over its limit", len(got))
			}
		})
	}
}

func TestAMemoryIsRestoredWhereverItWasWrittenTo(t *testing.T) {
	const pages = 200
	for name, first := range memories(pages * pageSize) {
		t.Run(name, func(t *testing.T) {
			data := first.Reallocate((pages - 1) * pageSize)
			for i := 0; i < len(data); i += 1000 {
				data[i] = byte(i / 1000)
			}
			want := bytes.Clone(data)
			runs, _ := nonZero(data)
			kept := first.keep(runs)
			defer kept.free()
			i := &image{size: len(data), content: kept}
			m := newMemory(pages*pageSize, i)
			first.Free()
			defer m.Free()
			data = m.Reallocate((pages - 1) * pageSize)
			if err := m.restore(i); err != nil || !bytes.Equal(data, want) {
				t.Fatalf("at first it is not as the one that was kept: %v", err)
			}
			for _, step := range []int{len(data), 100_000, 4096, 1} { // few pages are restored in another way than many
				for at := step - 1; at < len(data); at += step {
					data[at] ^= 0xff
				}
				if bytes.Equal(data, want) {
					t.Fatal("nothing was written")
				}
				if err := m.restore(i); err != nil || !bytes.Equal(data, want) {
					t.Errorf("written to at each of %d bytes, it is not restored: %v", step, err)
				}
			}
			for _, step := range []int{1, 4096, 65536} {
				data = m.Reallocate(pages * pageSize)
				for at := 0; at < len(data); at += step {
					data[at] ^= 0xff
				}
				if err := m.restore(i); err != nil {
					t.Fatal(err)
				}
				if data = m.Reallocate(1); !bytes.Equal(data, want) || m.size() != len(want) {
					t.Errorf("grown and written to at each of %d bytes, it is restored to %d bytes", step, m.size())
				}
				if grown := m.Reallocate(pages * pageSize)[len(want):]; len(bytes.Trim(grown, "\x00")) > 0 {
					t.Errorf("grown anew, it is not empty")
				}
				if err := m.restore(i); err != nil {
					t.Fatal(err)
				}
				m.Reallocate(1)
			}
		})
	}
}

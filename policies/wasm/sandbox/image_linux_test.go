package sandbox

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAnImageOfZerosTakesNoMemory holds for a module that has much memory, and
// for the guests that read it.
func TestAnImageOfZerosTakesNoMemory(t *testing.T) {
	const size = 64 << 20
	first := newMemory(size, nil)
	data := first.Reallocate(size)
	data[5<<20] = 7
	i := &image{size: size, content: keepAll(first, data)}
	defer i.free()
	first.Free()
	guest := newMemory(size, i)
	defer guest.Free()
	for range 3 {
		data = guest.Reallocate(size)
		if bytes.Count(data, []byte{0}) != size-1 || data[5<<20] != 7 {
			t.Fatal("the guest does not find what was kept")
		}
		if err := guest.restore(i); err != nil {
			t.Fatal(err)
		}
	}
	var file unix.Stat_t
	if err := unix.Fstat(int(i.content.(*mappedContent).file.Fd()), &file); err != nil {
		t.Fatal(err)
	}
	if taken := file.Blocks * 512; taken > 1<<20 {
		t.Errorf("the image takes %d bytes", taken)
	}
}

func keepAll(m memory, data []byte) content {
	runs, _ := nonZero(data)
	return m.keep(runs)
}

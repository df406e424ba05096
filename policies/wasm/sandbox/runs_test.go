package sandbox

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"
)

// TestRunsAreWhatIsNotZeros is a model test: zeros, and the runs written over
// them, are the memory.
func TestRunsAreWhatIsNotZeros(t *testing.T) {
	page := os.Getpagesize()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		data := make([]byte, (1+random.IntN(600))*page)
		pages := map[int]bool{}
		for range random.IntN(300) {
			at := random.IntN(len(data))
			data[at] = 1
			pages[at/page] = true
		}
		runs, size := nonZero(data)
		if len(runs) > maxRuns || size != len(pages)*page {
			t.Fatalf("seed %d: %d runs, and %d bytes for %d pages", seed, len(runs), size, len(pages))
		}
		got, last := make([]byte, len(data)), 0
		for _, r := range runs {
			if r.at < last || r.at%page != 0 || len(r.data)%page != 0 {
				t.Fatalf("seed %d: a run from %d to %d after %d", seed, r.at, r.end(), last)
			}
			copy(got[r.at:], r.data)
			last = r.end()
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("seed %d: the runs are not the memory", seed)
		}
	}
}

// TestTheLargestGapsAreLeft holds where pages are spread thinly.
func TestTheLargestGapsAreLeft(t *testing.T) {
	page := os.Getpagesize()
	data := make([]byte, 4000*page)
	for n := 0; n < 4000; n += 10 {
		data[n*page] = 1
	}
	if runs, size := nonZero(data); len(runs) != maxRuns || size != 400*page {
		t.Errorf("%d runs, %d bytes", len(runs), size)
	}
}

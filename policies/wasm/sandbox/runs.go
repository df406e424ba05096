package sandbox

import (
	"bytes"
	"os"
	"slices"
)

// run is a part of a memory with data, in whole pages of the machine. Gaps between
// runs are zeros, and are not stored.
type run struct {
	at   int
	data []byte
}

func (r run) end() int { return r.at + len(r.data) }

// maxRuns is the maximum number of runs of an image: each is a memory mapping, and
// a process can have some ten thousand.
const maxRuns = 64

// nonZero returns the runs of a memory, and the size of its pages that are not
// zeros. If there are too many runs, those with the smallest gaps are joined.
func nonZero(data []byte) (runs []run, size int) {
	page := os.Getpagesize()
	for at := 0; at < len(data); at += page {
		p := data[at:min(at+page, len(data))]
		if zeros(p) {
			continue
		}
		size += len(p)
		if last := len(runs) - 1; last >= 0 && runs[last].end() == at {
			runs[last].data = data[runs[last].at : at+len(p)]
			continue
		}
		runs = append(runs, run{at, p})
	}
	return join(runs, data), size
}

// join keeps the largest gaps.
func join(runs []run, data []byte) []run {
	if len(runs) <= maxRuns {
		return runs
	}
	gaps := make([]int, 0, len(runs)-1)
	for i := range runs[1:] {
		gaps = append(gaps, runs[i+1].at-runs[i].end())
	}
	slices.Sort(gaps)
	left := gaps[len(gaps)-(maxRuns-1):]
	smallest, several := left[0], 0 // smallest gap to keep, and the number of gaps of that size
	for several < len(left) && left[several] == smallest {
		several++
	}
	joined := runs[:1:1]
	for _, r := range runs[1:] {
		last := &joined[len(joined)-1]
		gap := r.at - last.end()
		if gap == smallest {
			several--
		}
		if gap < smallest || gap == smallest && several < 0 {
			last.data = data[last.at:r.end()]
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

func copyRuns(runs []run) heapContent {
	copied := make(heapContent, 0, len(runs))
	for _, r := range runs {
		copied = append(copied, run{r.at, bytes.Clone(r.data)})
	}
	return copied
}

var zeroPage [64 << 10]byte

func zeros(p []byte) bool { return bytes.Equal(p, zeroPage[:len(p)]) }

// clearPages zeros pages that are not zeros. Pages of zeros may use no memory until
// they are written to.
func clearPages(b []byte) {
	page := os.Getpagesize()
	for at := 0; at < len(b); at += page {
		if p := b[at:min(at+page, len(b))]; !zeros(p) {
			clear(p)
		}
	}
}

func writePages(to, from []byte) {
	page := os.Getpagesize()
	for at := 0; at < len(to); at += page {
		end := min(at+page, len(to))
		if !bytes.Equal(to[at:end], from[at:end]) {
			copy(to[at:end], from[at:end])
		}
	}
}

package latest_test

import (
	"sync"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/latest"
)

func TestValue_IsEmptyBeforeStore(t *testing.T) {
	var v latest.Value[int]
	if _, ok := v.Load(); ok {
		t.Error("the zero Value has a value")
	}
	v.Store(1)
	v.Store(2)
	if got, ok := v.Load(); !ok || got != 2 {
		t.Errorf("got %d, %t, want the newest", got, ok)
	}
}

func TestValue_ChangedIsClosedByTheNextStore(t *testing.T) {
	var v latest.Value[int]
	v.Store(1)
	changed := v.Changed()
	select {
	case <-changed:
		t.Fatal("it was closed by an earlier Store")
	default:
	}
	v.Update(func(n int) int { return n + 1 })
	<-changed
	if got, _ := v.Load(); got != 2 {
		t.Errorf("got %d", got)
	}
}

// Whoever asks for the channel before Load misses nothing, however often it is stored.
func TestValue_ReaderGetsTheNewestValue(t *testing.T) {
	const newest = 1000
	var v latest.Value[int]
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				changed := v.Changed()
				if n, _ := v.Load(); n == newest {
					return
				}
				<-changed
			}
		})
	}
	for n := range newest + 1 {
		v.Store(n)
	}
	readers.Wait()
}

package groupcommit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestSubmit_CommitsTogetherWhatArrivesDuringACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		var groups []int
		c := New(Limits{Items: 100, Bytes: 100, PendingBytes: 1000}, func(items []int) error {
			groups = append(groups, len(items))
			if len(groups) == 1 {
				<-proceed
			}
			return nil
		})
		for range 51 {
			go func() {
				if err := c.Submit(t.Context(), 1, 1); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		close(proceed)
		synctest.Wait()
		c.Close()
		if diff := cmp.Diff([]int{1, 50}, groups); diff != "" {
			t.Errorf("sizes of commits (-want +got):\n%s", diff)
		}
	})
}

func TestSubmit_BoundsEachCommitAndWhatWaits(t *testing.T) {
	const item = 40
	var pending atomic.Int64
	c := New(Limits{Items: 3, Bytes: 100, PendingBytes: 200}, func(items []int64) error {
		if len(items) > 2 {
			t.Errorf("a commit of %d bytes, want at most 100", len(items)*item)
		}
		return nil
	})
	defer c.Close()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 20 {
				if err := c.Submit(t.Context(), item, item); err != nil {
					t.Error(err)
				}
				pending.Add(1)
			}
		})
	}
	all.Wait()
	if pending.Load() != 1000 {
		t.Errorf("%d were committed, want 1000", pending.Load())
	}
	if err := c.Submit(t.Context(), 1, 1<<40); err != nil {
		t.Errorf("an item above the limits: %v", err)
	}
}

func TestSubmit_ReturnsTheErrorOfItsCommit(t *testing.T) {
	full := errors.New("disk full")
	c := New(Limits{Items: 10, Bytes: 10, PendingBytes: 10}, func(items []int) error {
		if items[0] == 1 {
			return full
		}
		return nil
	})
	defer c.Close()
	if err := c.Submit(t.Context(), 1, 1); !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
	if err := c.Submit(t.Context(), 2, 1); err != nil {
		t.Errorf("after a failed commit: %v", err)
	}
}

func TestSubmit_EndsWithItsContext(t *testing.T) {
	started, proceed := make(chan struct{}), make(chan struct{})
	c := New(Limits{Items: 1, Bytes: 1, PendingBytes: 2}, func([]int) error {
		started <- struct{}{}
		<-proceed
		return nil
	})
	var first sync.WaitGroup
	first.Go(func() { _ = c.Submit(context.WithoutCancel(t.Context()), 1, 1) })
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 { // each would need room that the one before had taken
		if err := c.Submit(ctx, 2, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	}
	close(proceed)
	first.Wait()
	c.Close()
	if err := c.Submit(t.Context(), 3, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

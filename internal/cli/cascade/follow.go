package cascade

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/cascade"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

const (
	liveInterval  = 200 * time.Millisecond
	plainInterval = 2 * time.Second  // between two lines
	quietInterval = 30 * time.Second // after which a line is written although nothing changed
)

// exitTimeout is the exit code if objects are left when the time is over.
const exitTimeout = 4

// follower follows cascades until nothing of them is left.
type follower struct {
	out     io.Writer
	timeout time.Duration // 0: none
	again   string        // the command that follows them again

	read func(context.Context) (*survey.Survey, error) // everything that may be part of the cascades
}

func newFollower(a *input.Input, targets []target, timeout time.Duration, s streams) *follower {
	read := func(ctx context.Context) (*survey.Survey, error) {
		err := a.ReadCluster(ctx, scope(a, targets), s.errOut)
		return a.Survey, err
	}
	return &follower{out: s.out, timeout: timeout, again: "gleaner wait " + arguments(a, targets), read: read}
}

// follow shows the progress of the cascades until nothing is left. Then it reads everything again:
// there may be dependents of types that the cascades had no object of before.
func (f *follower) follow(ctx context.Context, client metadata.Interface, feed *feed, places []place) error {
	began := time.Now()
	limited, cancel := ctx, context.CancelFunc(func() {})
	if f.timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, f.timeout)
	}
	defer cancel()
	show := f.shower(began)
	for {
		s, err := f.progress(limited, client, feed, places, show)
		if err == nil && s.Done() {
			var all *survey.Survey
			if all, err = f.read(limited); err == nil {
				feed.seen(objects(all))
				if s, _ = feed.status(); s.Done() {
					show.clear()
					writeEnd(f.out, s, survey.Lines(all.Unread), time.Since(began))
					return nil
				}
				places = feed.places(all)
				continue
			}
		}
		show.clear()
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted: %s; the deletion continues; to follow it again, run %s", progressLine(s), f.again)
		case limited.Err() != nil:
			return exit.Error{Code: exitTimeout, Err: fmt.Errorf("timed out after %s: %s; to find out why an object is left, run gleaner explain KIND/NAME", f.timeout, plainLine(s))}
		}
		return fmt.Errorf("check that nothing is left: %w", err)
	}
}

// progress watches, and shows what is seen, until nothing is left or the context ends.
func (f *follower) progress(ctx context.Context, client metadata.Interface, feed *feed, places []place, show shower) (cascade.Status, error) {
	defer watching(ctx, client, feed, places)()
	tick := time.NewTicker(liveInterval)
	defer tick.Stop()
	for {
		s, unread := feed.status()
		if s.Done() {
			return s, nil
		}
		show.status(s, unread)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

// watching watches until stop is called, which returns when it has ended.
func watching(ctx context.Context, client metadata.Interface, feed *feed, places []place) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		feed.run(ctx, client, places)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (f *follower) shower(began time.Time) shower {
	if live := printer.NewLive(f.out); live != nil {
		return &liveShower{live, began}
	}
	return &plainShower{out: f.out}
}

package cascade

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

const (
	liveInterval  = 200 * time.Millisecond
	plainInterval = 2 * time.Second  // between two lines
	quietInterval = 30 * time.Second // after which a line is written although nothing changed
)

// exitTimeout is the exit code if objects are left when the time is over.
const exitTimeout = 4

// follower follows cascades until nothing is left of them.
type follower struct {
	out     io.Writer
	timeout time.Duration // 0: none
	again   string        // the command that follows them once more

	read func(context.Context) (*survey.Survey, error) // what the cascades may be part of
}

func newFollower(a *input.Input, targets []target, timeout time.Duration, s streams) *follower {
	return &follower{out: s.out, timeout: timeout, again: "gleaner wait " + strings.Join(arguments(targets), " "), read: func(ctx context.Context) (*survey.Survey, error) {
		err := a.ReadCluster(ctx, scope(a, targets), s.errOut)
		return a.Survey, err
	}}
}

// follow shows how the cascades proceed. When nothing that was watched is left, it reads everything once
// more: there may be dependents of types that the cascades had no object of before.
func (f *follower) follow(ctx context.Context, client metadata.Interface, feed *feed, places []place) error {
	began := time.Now()
	stop := watching(ctx, client, feed, places)
	defer func() { stop() }()
	var over <-chan time.Time
	if f.timeout > 0 {
		timer := time.NewTimer(f.timeout)
		defer timer.Stop()
		over = timer.C
	}
	tick := time.NewTicker(liveInterval)
	defer tick.Stop()
	show := f.shower(began)
	for {
		s, unread := feed.status()
		if s.Done() {
			again, err := f.read(ctx)
			if err != nil {
				show.clear()
				return fmt.Errorf("read what is left: %w", err)
			}
			feed.seen(objects(again))
			if s, _ = feed.status(); s.Done() {
				show.clear()
				writeEnd(f.out, s, time.Since(began))
				return nil
			}
			stop()
			stop = watching(ctx, client, feed, feed.places(again))
			continue
		}
		show.status(s, unread)
		select {
		case <-tick.C:
		case <-over:
			show.clear()
			return exit.Error{Code: exitTimeout, Err: fmt.Errorf("timed out after %s: %s; gleaner explain KIND/NAME says why an object is left", f.timeout, plainLine(s))}
		case <-ctx.Done():
			show.clear()
			return fmt.Errorf("interrupted: %s; the deletion goes on, and %s follows it", progressLine(s), f.again)
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

package cascade

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
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
}

// follow shows how the cascades proceed.
func (f *follower) follow(ctx context.Context, client metadata.Interface, feed *feed, places []place) error {
	began := time.Now()
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		feed.run(watching, client, places)
	}()
	defer func() {
		stop()
		<-ended
	}()
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
			show.clear()
			writeEnd(f.out, s, time.Since(began))
			return nil
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

func (f *follower) shower(began time.Time) shower {
	if live := printer.NewLive(f.out); live != nil {
		return &liveShower{live, began}
	}
	return &plainShower{out: f.out}
}

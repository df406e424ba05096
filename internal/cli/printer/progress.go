package printer

import (
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/gleaner-dev/gleaner/operator/escape"
)

const (
	progressAfter = 2 * time.Second // shorter steps show no progress
	progressEvery = 200 * time.Millisecond
)

// Progress shows the current step on a terminal, if it takes longer than two seconds. The
// caller must call over at the end.
func Progress(errOut io.Writer, doing func() string) (over func()) {
	errOut = Raw(errOut)
	if !printers.IsTerminal(errOut) {
		return func() {}
	}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		showProgress(errOut, doing, end)
	}()
	return sync.OnceFunc(func() {
		close(end)
		<-done
	})
}

func showProgress(errOut io.Writer, doing func() string, end <-chan struct{}) {
	first := time.NewTimer(progressAfter)
	defer first.Stop()
	select {
	case <-end:
		return
	case <-first.C:
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		fmt.Fprintf(errOut, "\r\x1b[K%s", escape.Text(doing()))
		select {
		case <-end:
			fmt.Fprint(errOut, "\r\x1b[K")
			return
		case <-tick.C:
		}
	}
}

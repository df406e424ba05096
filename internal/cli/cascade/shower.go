package cascade

import (
	"io"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/cascade"
)

// shower shows how cascades proceed.
type shower interface {
	status(s cascade.Status, unread []string)
	clear() // before other output
}

// liveShower shows the tree on a terminal.
type liveShower struct {
	*printer.Live
	began time.Time
}

func (l *liveShower) status(s cascade.Status, unread []string) {
	l.Show(liveLines(s, unread, time.Since(l.began))...)
}

func (l *liveShower) clear() { l.Clear() }

// plainShower writes a line now and then.
type plainShower struct {
	out   io.Writer
	last  string
	shown time.Time
}

func (p *plainShower) status(s cascade.Status, unread []string) {
	since := time.Since(p.shown)
	if since < plainInterval {
		return
	}
	line := plainLine(s)
	for _, text := range unread {
		line += "; can't be read: " + text
	}
	if line == p.last && since < quietInterval {
		return
	}
	printer.Fprintln(p.out, line)
	p.last, p.shown = line, time.Now()
}

func (*plainShower) clear() {}

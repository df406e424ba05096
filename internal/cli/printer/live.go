package printer

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/gleaner-dev/gleaner/operator/escape"
)

// Live shows lines on a terminal that replace the ones before.
type Live struct {
	out    io.Writer
	height int // of what is shown
}

// NewLive returns a Live for a terminal; nil if out is none.
func NewLive(out io.Writer) *Live {
	out = Raw(out)
	if !printers.IsTerminal(out) {
		return nil
	}
	return &Live{out: out}
}

// Show replaces the lines. What does not fit into the width of the terminal is cut off.
func (l *Live) Show(lines ...string) {
	const wrapOff, wrapOn = "\x1b[?7l", "\x1b[?7h" // a wrapped line would have an unknown height
	var b strings.Builder
	if l.height > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.height)
	}
	b.WriteString("\r\x1b[J" + wrapOff)
	for _, line := range lines {
		b.WriteString(escape.Text(line) + "\n")
	}
	b.WriteString(wrapOn)
	_, _ = io.WriteString(l.out, b.String())
	l.height = len(lines)
}

// Clear removes the lines.
func (l *Live) Clear() { l.Show() }

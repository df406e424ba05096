package printer

import (
	"io"
	"sync/atomic"
)

// Step is the current step of a command, shown as progress.
type Step struct{ text atomic.Pointer[string] }

// Show starts to show the step on a terminal, and returns the function that stops it.
func (d *Step) Show(errOut io.Writer) (over func()) {
	return Progress(errOut, func() string {
		if text := d.text.Load(); text != nil {
			return *text
		}
		return ""
	})
}

// Set sets the text of the step.
func (d *Step) Set(text string) { d.text.Store(&text) }

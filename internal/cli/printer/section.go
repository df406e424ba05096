package printer

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Section prints a section of a report: a title and the lines below it.
type Section struct {
	Out     io.Writer
	Palette Palette
}

// Title prints the title.
func (s Section) Title(format string, args ...any) {
	_, _ = Fprintf(s.Out, "\n%s\n", s.Palette.Paint(Strong, fmt.Sprintf(format, args...)))
}

// Field prints a named value, unless it is empty.
func (s Section) Field(name, value string, color Color) {
	if value == "" {
		return
	}
	_, _ = Fprintf(s.Out, "    %-14s%s\n", name+":", s.Palette.Paint(color, OneLine(value)))
}

// OneLine replaces line breaks by spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// PrintIndented prints a table, indented by two spaces.
func PrintIndented(out io.Writer, t Table, p Palette) error {
	var b strings.Builder
	if err := t.Write(&b, p); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		_, _ = Fprintf(out, "  %s", Safe(line))
	}
	return nil
}

// NewSection returns a section that is printed to out.
func NewSection(out io.Writer, palette Palette) Section { return Section{out, palette} }

// WriteLines prints indented lines with a title, unless there are none.
func WriteLines(out io.Writer, p Palette, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	_, _ = Fprintf(out, "\n%s\n", p.Paint(Caution, title))
	for _, line := range lines {
		_, _ = Fprintf(out, "  %s\n", line)
	}
}

// Count returns a number with the noun in singular or plural.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Moment returns a time in UTC; "" for nil.
func Moment(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

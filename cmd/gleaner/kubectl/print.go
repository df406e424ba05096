package kubectl

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/operator/escape"
)

// Much of what commands print is text that somebody else has written: names, reasons,
// messages. Two things keep it from being more than text. Fprintf and its kin write
// each argument as one line, so that it forges no row; and a Writer, which
// GuardOutput puts in place of every command's output, lets nothing through that a
// terminal would obey, also where a command has printed by other means.

// Safe is text of ours: it may have several lines, and is printed as it is.
type Safe string

// Fprintf is fmt.Fprintf, with each argument on one line, and without what is not
// seen. The format is printed as it is, so it must be a constant.
func Fprintf(out io.Writer, format string, args ...any) (int, error) {
	return fmt.Fprintf(out, format, texts(args)...)
}

// Fprintln is fmt.Fprintln, in the same way.
func Fprintln(out io.Writer, args ...any) (int, error) { return fmt.Fprintln(out, texts(args)...) }

func texts(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = text{a}
	}
	return out
}

// text is an argument, whatever verb it is for.
type text struct{ value any }

// Format implements fmt.Formatter.
func (t text) Format(to fmt.State, verb rune) {
	if safe, ok := t.value.(Safe); ok {
		_, _ = io.WriteString(to, string(safe))
		return
	}
	_, _ = io.WriteString(to, line(fmt.Sprintf(fmt.FormatString(to, verb), t.value)))
}

// paint begins what Palette writes to have text coloured. It can't be guessed, so
// nobody else's text is taken for that.
var paint = func() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	return "\x1b" + hex.EncodeToString(random[:])
}()

// line is text as one line. The colours of a Palette stay.
func line(text string) string {
	parts := strings.Split(text, paint)
	for i, part := range parts {
		parts[i] = escape.Text(part)
	}
	return strings.Join(parts, paint)
}

// Writer writes text for people: what a terminal would obey is written out. Lines stay.
type Writer struct {
	mu   sync.Mutex // covers what follows
	to   io.Writer
	rest []byte // the beginning of a character whose end is still to come
}

// Guard returns a Writer to out, which may be one already.
func Guard(out io.Writer) *Writer {
	if w, ok := out.(*Writer); ok {
		return w
	}
	return &Writer{to: out}
}

// GuardOutput puts Writers in place of a command's outputs.
func GuardOutput(cmd *cobra.Command) {
	cmd.SetOut(Guard(cmd.OutOrStdout()))
	cmd.SetErr(Guard(cmd.ErrOrStderr()))
}

// Raw is what a Writer writes to, or else what it is given. It is for documents, whose
// encoders have their own way of writing what is not to be taken literally.
func Raw(out io.Writer) io.Writer {
	if w, ok := out.(*Writer); ok {
		return w.to
	}
	return out
}

// Write implements io.Writer.
func (w *Writer) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append(w.rest, data...)
	whole := len(all) - unfinished(all)
	w.rest = bytes.Clone(all[whole:])
	parts := strings.Split(string(all[:whole]), paint)
	for i, part := range parts {
		parts[i] = escape.Lines(part)
	}
	if _, err := io.WriteString(w.to, strings.Join(parts, "\x1b")); err != nil {
		return 0, err
	}
	return len(data), nil
}

// unfinished is how many bytes at the end are the beginning of a character.
func unfinished(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if last := data[len(data)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return n
			}
			break
		}
	}
	return 0
}

// TellError writes what went wrong. Where an error has several lines, all but the
// first are indented, so that none of them looks like one of ours.
func TellError(out io.Writer, program string, err error) {
	lines := strings.Split(strings.TrimRight(Message(program, err), "\n"), "\n")
	for i := range lines {
		lines[i] = escape.Lines(lines[i])
	}
	_, _ = fmt.Fprintln(out, strings.Join(lines, "\n  ")) // nobody is left to be told
}

// Package printer prints the output of commands: text that is safe for terminals, tables, colors,
// progress and documents.
package printer

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

// Commands print untrusted text: names, reasons, messages. Fprintf and Fprintln print each
// argument as one line, so that it can't forge table rows; and the Writer, which GuardOutput
// installs as every command's output, escapes terminal control sequences, also in text that
// is printed by other means.

// Safe is trusted text, which may have several lines and is printed unchanged.
type Safe string

// Fprintf is fmt.Fprintf with each argument escaped to one line of visible characters. The
// format is printed unchanged, so it must be a constant.
func Fprintf(out io.Writer, format string, args ...any) (int, error) {
	return fmt.Fprintf(out, format, arguments(args)...)
}

// Fprintln is fmt.Fprintln with arguments escaped in the same way.
func Fprintln(out io.Writer, args ...any) (int, error) { return fmt.Fprintln(out, arguments(args)...) }

func arguments(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = argument{a}
	}
	return out
}

// argument is an argument for any verb.
type argument struct{ value any }

// Format implements fmt.Formatter.
func (t argument) Format(to fmt.State, verb rune) {
	if safe, ok := t.value.(Safe); ok {
		_, _ = io.WriteString(to, string(safe))
		return
	}
	_, _ = io.WriteString(to, escapeLine(fmt.Sprintf(fmt.FormatString(to, verb), t.value)))
}

// colorMark marks the color sequences of Palette. It is random, so that untrusted text can't
// contain it.
var colorMark = func() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return "\x1b" + hex.EncodeToString(random[:])
}()

// escapeLine escapes text to one line, except for the colors of a Palette.
func escapeLine(text string) string {
	parts := strings.Split(text, colorMark)
	for i, part := range parts {
		parts[i] = escape.Text(part)
	}
	return strings.Join(parts, colorMark)
}

// Writer escapes terminal control characters, except for line breaks.
type Writer struct {
	mu         sync.Mutex // covers what follows
	to         io.Writer
	incomplete []byte // an incomplete UTF-8 sequence
}

// Guard returns a Writer for out, or out itself if it is a Writer.
func Guard(out io.Writer) *Writer {
	if w, ok := out.(*Writer); ok {
		return w
	}
	return &Writer{to: out}
}

// GuardOutput replaces a command's outputs with Writers.
func GuardOutput(cmd *cobra.Command) {
	cmd.SetOut(Guard(cmd.OutOrStdout()))
	cmd.SetErr(Guard(cmd.ErrOrStderr()))
}

// Raw returns the underlying writer of a Writer, or else out itself. It is for documents, whose
// encoders escape control characters themselves.
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
	all := append(w.incomplete, data...)
	whole := len(all) - incompleteSuffix(all)
	w.incomplete = bytes.Clone(all[whole:])
	parts := strings.Split(string(all[:whole]), colorMark)
	for i, part := range parts {
		parts[i] = escape.Lines(part)
	}
	if _, err := io.WriteString(w.to, strings.Join(parts, "\x1b")); err != nil {
		return 0, err
	}
	return len(data), nil
}

// incompleteSuffix returns the length of an incomplete UTF-8 sequence at the end.
func incompleteSuffix(data []byte) int {
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

package wasm

import (
	"bytes"
	"strings"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Log is the log of one call of a module.
type Log struct {
	Lines   []Line
	Dropped int // bytes dropped over the size limit
}

// Line is a line of a module's log.
type Line struct {
	Source Source
	Level  hostabi.LogLevel
	Text   string // valid UTF-8
}

// Source is the origin of a line.
type Source string

// The sources.
const (
	SourceLog    Source = "log"    // the ABI's function
	SourceStdout Source = "stdout" // level info
	SourceStderr Source = "stderr" // level warn
)

// logBuffer collects a log of limited size.
type logBuffer struct {
	lines     Log
	remaining int // bytes left
	pending   [2]partialLine
}

// partialLine is an incomplete line of an output.
type partialLine struct {
	line Line
	text []byte
}

const (
	lineBytes   = 32 // overhead of each line, which limits empty ones as well
	longestLine = 8 << 10
)

// add adds a line, truncated to the remaining space.
func (j *logBuffer) add(line Line, text []byte) {
	room := min(max(0, j.remaining-lineBytes), longestLine)
	if j.remaining < lineBytes {
		j.lines.Dropped += len(text)
		j.remaining = 0
		return
	}
	if len(text) > room {
		j.lines.Dropped += len(text) - room
		text = text[:room]
	}
	j.remaining -= lineBytes + len(text)
	line.Text = strings.ToValidUTF8(string(text), "\uFFFD")
	j.lines.Lines = append(j.lines.Lines, line)
}

// write adds output, in chunks of any size.
func (j *logBuffer) write(line Line, data []byte) {
	p := &j.pending[0]
	if line.Source == SourceStderr {
		p = &j.pending[1]
	}
	p.line = line
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			p.text = append(p.text, data...)
			if len(p.text) < longestLine {
				return
			}
			data = nil
		} else {
			p.text = append(p.text, data[:end]...)
			data = data[end+1:]
		}
		j.add(line, p.text)
		p.text = p.text[:0]
	}
}

// end returns the log, including incomplete lines.
func (j *logBuffer) end() Log {
	for i := range j.pending {
		if p := &j.pending[i]; len(p.text) > 0 {
			j.add(p.line, p.text)
			p.text = nil
		}
	}
	return j.lines
}

// failureMessage returns what a failed module reported: the panic message, which
// precedes a trace; otherwise the end of its standard error; otherwise the last
// error that it logged. Go writes panics to standard error, TinyGo to standard
// output.
func (j *logBuffer) failureMessage() string {
	var said []string
	var panicked, logged string
	for _, line := range j.end().Lines {
		panics := strings.HasPrefix(line.Text, "panic: ") || strings.HasPrefix(line.Text, "fatal error: ")
		switch {
		case line.Source == SourceStderr && panics:
			return stderrPrefix + shorten(line.Text)
		case line.Source == SourceStderr:
			said = append(said, line.Text)
		case line.Source == SourceStdout && panics:
			panicked = line.Text
		case line.Source == SourceLog && line.Level == hostabi.LogError:
			logged = line.Text
		}
	}
	const few = 3
	switch {
	case panicked != "":
		return "last standard output: " + shorten(panicked)
	case len(said) != 0:
		return stderrPrefix + shorten(strings.Join(said[max(0, len(said)-few):], " / "))
	case logged != "":
		return "last logged error: " + shorten(logged)
	}
	return ""
}

const stderrPrefix = "last standard error: "

func shorten(text string) string {
	const most = 400
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

package wasm

import (
	"bytes"
	"strings"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Log is what a module wrote in one call.
type Log struct {
	Lines   []Line
	Dropped int // bytes for which there was no room
}

// Line is a line of a module's log.
type Line struct {
	Source Source
	Level  hostabi.LogLevel
	Text   string // valid UTF-8
}

// Source is where a module wrote a line.
type Source string

// The sources.
const (
	SourceLog    Source = "log"    // the ABI's own function
	SourceStdout Source = "stdout" // level info
	SourceStderr Source = "stderr" // level warn
)

// journal collects a log up to a size.
type journal struct {
	kept    Log
	room    int // bytes left
	pending [2]unended
}

// unended is what has been written to an output since its last line ended.
type unended struct {
	line Line
	text []byte
}

const (
	lineBytes   = 32 // that a line counts besides its text, so that empty ones run out too
	longestLine = 8 << 10
)

// add adds a line, or what there is room for.
func (j *journal) add(line Line, text []byte) {
	room := min(max(0, j.room-lineBytes), longestLine)
	if j.room < lineBytes {
		j.kept.Dropped += len(text)
		j.room = 0
		return
	}
	if len(text) > room {
		j.kept.Dropped += len(text) - room
		text = text[:room]
	}
	j.room -= lineBytes + len(text)
	line.Text = strings.ToValidUTF8(string(text), "\uFFFD")
	j.kept.Lines = append(j.kept.Lines, line)
}

// write adds what is written to an output, which comes in any pieces.
func (j *journal) write(line Line, data []byte) {
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

// end returns the log, with lines that have not ended.
func (j *journal) end() Log {
	for i := range j.pending {
		if p := &j.pending[i]; len(p.text) > 0 {
			j.add(p.line, p.text)
			p.text = nil
		}
	}
	return j.kept
}

// lastWords is what a module that failed has said about it, and where: what it panicked
// with, which a trace comes after; else the end of its standard error; else the last
// error that it logged. Go panics to standard error, and TinyGo to standard output.
func (j *journal) lastWords() string {
	var said []string
	var panicked, logged string
	for _, line := range j.end().Lines {
		panics := strings.HasPrefix(line.Text, "panic: ") || strings.HasPrefix(line.Text, "fatal error: ")
		switch {
		case line.Source == SourceStderr && panics:
			return toStderr + shorten(line.Text)
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
		return "the last that it wrote to standard output: " + shorten(panicked)
	case len(said) != 0:
		return toStderr + shorten(strings.Join(said[max(0, len(said)-few):], " / "))
	case logged != "":
		return "the last error that it logged: " + shorten(logged)
	}
	return ""
}

const toStderr = "the last that it wrote to standard error: "

func shorten(text string) string {
	const most = 400
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

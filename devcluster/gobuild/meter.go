package gobuild

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

const downloading = "go: downloading "

// meter reads what the go command prints to standard error, line by line. With
// -v it prints each package when it begins to compile it.
type meter struct {
	mu        sync.Mutex
	part      string          // an incomplete line
	pending   map[string]bool // packages that have not been printed yet
	total     int
	downloads int
	rest      []string // all other lines
}

func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.part += string(p)
	for {
		line, rest, complete := strings.Cut(m.part, "\n")
		if !complete {
			return len(p), nil
		}
		m.part = rest
		m.read(strings.TrimSuffix(line, "\r"))
	}
}

func (m *meter) read(line string) {
	switch {
	case m.pending[line]:
		delete(m.pending, line)
	case strings.HasPrefix(line, downloading):
		m.downloads++
	default:
		m.rest = append(m.rest, line)
	}
}

// loading is the state before it is known what has to be compiled.
func (m *meter) loading() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.downloads > 0 {
		return fmt.Sprintf("downloading modules, %s so far", formatThousands(m.downloads))
	}
	return "reading source files"
}

func (m *meter) compiling() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total == 0 {
		return "linking"
	}
	if len(m.pending) == 0 {
		return "100%, linking"
	}
	done := m.total - len(m.pending)
	return fmt.Sprintf("%d%%, %s of %s packages", done*100/m.total, formatThousands(done), formatThousands(m.total))
}

// tail is the end of what was neither a package nor a download.
func (m *meter) tail(lines int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.rest
	if m.part != "" {
		all = append(all, m.part)
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// formatThousands writes 1508 as 1,508.
func formatThousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

package worker

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
)

// errTimeout is of a read or write of a stream that took longer than quickTime.
const errTimeout = syscall.EAGAIN

// stream is our end of a connection. Its reads and writes fail with errTimeout.
type stream struct{ *os.File }

// deadlineConn is a stream whose reads and writes take as long as they take.
type deadlineConn struct{ stream }

// Read implements io.Reader.
func (p deadlineConn) Read(into []byte) (int, error) {
	for {
		n, err := p.stream.Read(into)
		if n > 0 || !errors.Is(err, errTimeout) {
			return n, err
		}
	}
}

// Write implements io.Writer.
func (p deadlineConn) Write(data []byte) (written int, err error) {
	for {
		n, err := p.stream.Write(data[written:])
		if written += n; !errors.Is(err, errTimeout) {
			return written, err
		}
	}
}

// tail keeps the beginning of what a worker writes to standard error, which is why it
// crashed, and drops the rest.
type tail struct {
	lock sync.Mutex // covers kept
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(data []byte) (int, error) {
	const most = 4 << 10
	t.lock.Lock()
	defer t.lock.Unlock()
	t.kept = append(t.kept, data[:min(len(data), max(0, most-len(t.kept)))]...)
	return len(data), nil
}

// first is the first line, which names the failure.
func (t *tail) first() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	line, _, _ := bytes.Cut(t.kept, []byte("\n"))
	return strings.ToValidUTF8(strings.TrimSpace(string(line[:min(len(line), 200)])), "")
}

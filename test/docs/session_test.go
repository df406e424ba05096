package docs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// timeout is the timeout of a command.
const timeout = 3 * time.Minute

// session is a shell for a document's commands.
type session struct {
	shell   *exec.Cmd
	in      io.Writer
	output  chan string // lines
	tree    string      // a copy of the checkout
	replace *strings.Replacer
}

// end is the marker that the shell prints after each command, followed by its exit code.
const end = "-- the command has ended with"

// newSession starts a shell with a home of its own.
func newSession(t *testing.T, tree string) *session {
	t.Helper()
	shell := exec.Command("bash", "--noprofile", "--norc")
	shell.Dir, shell.Env = tree, environment(t)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children can be killed with it
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, into, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	shell.Stdout, shell.Stderr = into, into
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	into.Close()
	s := &session{shell: shell, in: in, output: make(chan string, 1000), tree: tree}
	go s.read(out)
	t.Cleanup(func() {
		in.Close()
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // with commands in the background
		_ = shell.Wait()                                      // killed above
		for range s.output {                                  // until read ends
		}
	})
	return s
}

func (s *session) read(out *os.File) {
	defer close(s.output)
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.output <- lines.Text()
	}
}

// environment is the environment of a new account, except for caches.
func environment(t *testing.T) []string {
	t.Helper()
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GOFLAGS", "CGO_ENABLED").Output()
	if err != nil {
		t.Fatal(err)
	}
	values := strings.Split(strings.TrimRight(string(caches), "\n"), "\n")
	env := []string{
		"HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TERM=dumb", "LANG=C.UTF-8",
		"GLEANER_CACHE=" + toolCache(t),
	}
	for i, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GOFLAGS", "CGO_ENABLED"} {
		if i < len(values) {
			env = append(env, name+"="+values[i])
		}
	}
	return env
}

// run types a command, and returns its output. If strict, each part of the
// command must succeed, and the shell ends at the first that fails. Otherwise
// the document may show a failure.
func (s *session) run(t *testing.T, command string, strict bool) (lines []string, err error) {
	t.Helper()
	if strict {
		command = "set -eo pipefail\n" + command + "\nset +eo pipefail"
	}
	fmt.Fprintf(s.in, "{ :\n%s\n} 2>&1 </dev/null; echo \"%s $?\"\n", command, end)
	late := time.NewTimer(timeout)
	defer late.Stop()
	for {
		select {
		case line, ok := <-s.output:
			if !ok {
				return lines, fmt.Errorf("shell has ended")
			}
			before, code, ended := strings.Cut(line, end+" ")
			if before != "" || !ended {
				lines = append(lines, before)
			}
			switch {
			case ended && code != "0":
				return lines, fmt.Errorf("exit code %s", code)
			case ended:
				return lines, nil
			}
		case <-late.C:
			return lines, fmt.Errorf("command did not end within %s", timeout)
		}
	}
}

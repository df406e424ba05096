package docs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// development is the control plane that the documents share, since starting it is
// what takes longest. The first of them that says "gleaner dev" starts it.
var development dev

// dev is "gleaner dev" in a terminal of its own.
type dev struct {
	process *exec.Cmd
	printed []string // until it is ready
	export  string   // the line to paste into another terminal
	address string   // of the debug endpoints
}

// example is the address that documents show, in place of the one that is printed.
const example = "127.0.0.1:41234"

var (
	exportLine  = regexp.MustCompile(`(?m)^\s*(export KUBECONFIG=\S+ PATH=\S+ GLEANER_ENDPOINT=\S+)$`)
	debugOrigin = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/debug/gc`)
)

// start runs the command of a tree.
func (d *dev) start(t *testing.T, tree string) {
	t.Helper()
	if d.process != nil {
		return
	}
	process := exec.Command(filepath.Join(tree, "bin/gleaner"), "dev")
	process.Dir, process.Env = tree, environment(t)
	process.Env = append(process.Env, "TMPDIR="+os.TempDir()) // it outlives this document
	tieToParent(process)
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	d.process = process
	ready := make(chan error, 1)
	go func() {
		lines, last := bufio.NewScanner(out), errors.New("it has ended")
		for lines.Scan() {
			if last == nil {
				continue // it must be able to write
			}
			d.printed = append(d.printed, lines.Text())
			if strings.HasPrefix(lines.Text(), "Ctrl-C ends it") {
				last = nil
				ready <- nil
			}
		}
		if last != nil {
			ready <- last
		}
	}()
	select {
	case err = <-ready:
	case <-time.After(patience):
		err = fmt.Errorf("not within %s", patience)
	}
	text := strings.Join(d.printed, "\n")
	if err != nil {
		t.Fatalf("gleaner dev is not ready: %v\n%s", err, text)
	}
	export, origin := exportLine.FindStringSubmatch(text), debugOrigin.FindStringSubmatch(text)
	if export == nil || origin == nil {
		t.Fatalf("gleaner dev does not say how it is reached:\n%s", text)
	}
	d.export, d.address = export[1], origin[1]
}

// stop is Ctrl-C.
func (d *dev) stop() error {
	if d.process == nil {
		return nil
	}
	if err := d.process.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	return d.process.Wait()
}

// kubectl asks the control plane.
func (d *dev) kubectl(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-c", d.export+`; exec kubectl "$@"`, "kubectl")
	command.Args = append(command.Args, arguments...)
	out, err := command.CombinedOutput()
	return string(out), err
}

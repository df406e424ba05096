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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gleaner-dev/gleaner/devcluster/child"
)

// sharedDev is the control plane that the documents share, since starting one
// takes long. The first document that runs "gleaner-dev dev" starts it.
var sharedDev dev

// dev is "gleaner-dev dev" in a terminal of its own.
type dev struct {
	process *exec.Cmd
	printed []string // until it is ready
	export  string   // the line to paste into another terminal
	address string   // of the debug endpoints
}

// documentedAddress is the address in documents, which is replaced by the printed one.
const documentedAddress = "127.0.0.1:41234"

var (
	exportLine  = regexp.MustCompile(`(?m)^\s*(export KUBECONFIG=\S+ KUBECACHEDIR=\S+ PATH=\S+ GLEANER_ENDPOINT=\S+)$`)
	debugOrigin = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)/debug/gc`)
)

// start runs the command in a tree.
func (d *dev) start(t *testing.T, tree string) {
	t.Helper()
	if d.process != nil {
		return
	}
	process := exec.Command(filepath.Join(tree, "bin/gleaner-dev"), "dev")
	process.Dir, process.Env = tree, environment(t)
	process.Env = append(process.Env, "TMPDIR="+os.TempDir()) // it must outlive this document
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(process); err != nil {
		t.Fatal(err)
	}
	d.process = process
	ready := make(chan error, 1)
	go func() {
		lines, last := bufio.NewScanner(out), errors.New("process ended")
		for lines.Scan() {
			if last == nil {
				continue // drain the output
			}
			d.printed = append(d.printed, lines.Text())
			if strings.HasPrefix(lines.Text(), "Press Ctrl-C to stop") {
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
	case <-time.After(timeout):
		err = fmt.Errorf("not within %s", timeout)
	}
	text := strings.Join(d.printed, "\n")
	if err != nil {
		t.Fatalf("gleaner-dev dev is not ready: %v\n%s", err, text)
	}
	export, origin := exportLine.FindStringSubmatch(text), debugOrigin.FindStringSubmatch(text)
	if export == nil || origin == nil {
		t.Fatalf("gleaner-dev dev did not print how to connect:\n%s", text)
	}
	d.export, d.address = export[1], origin[1]
}

// stop sends an interrupt, like Ctrl-C.
func (d *dev) stop() error {
	if d.process == nil {
		return nil
	}
	if err := d.process.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	return d.process.Wait()
}

// config returns the configuration of a client that is not limited.
func (d *dev) config() (*rest.Config, error) {
	_, after, _ := strings.Cut(d.export, "KUBECONFIG=")
	path, _, _ := strings.Cut(after, " ")
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err == nil {
		config.QPS = -1
	}
	return config, err
}

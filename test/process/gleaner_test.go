package process

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const (
	patience = 30 * time.Second
	stopTime = 5 * time.Second // that a process with little in hand may take to end
)

// gleaner is a running process of the command.
type gleaner struct {
	*testing.T
	cmd     *exec.Cmd
	log     *logbook
	metrics string // address of /metrics and /debug/gc, with the scheme
	probes  string // address of /healthz and /readyz, with the scheme
	exited  chan struct{}
	killed  bool // by the test
}

// start runs the command, without a canary, leader election and a guard unless
// the flags say otherwise. It is ended with the test.
func start(t *testing.T, cluster *devcluster.Cluster, flags ...string) *gleaner {
	t.Helper()
	metrics, probes, scheme := freeAddress(t), freeAddress(t), "http://"
	if slices.Contains(flags, "--insecure-debug=false") {
		scheme = "https://"
	}
	g := &gleaner{T: t, log: &logbook{}, metrics: scheme + metrics, probes: "http://" + probes, exited: make(chan struct{})}
	g.cmd = exec.Command(binary(t), append([]string{
		"run", "--kubeconfig=" + cluster.Kubeconfig(), "--canary-timeout=0", "--leader-elect=false", "--insecure-debug",
		"--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + probes,
	}, flags...)...)
	g.cmd.Stderr = g.log
	tieToParent(g.cmd)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(g.exited)
		_ = g.cmd.Wait() // the state tells how it ended
	}()
	t.Cleanup(func() {
		g.stop()
		if t.Failed() {
			t.Logf("process %d, %v:\n%s", g.cmd.Process.Pid, g.cmd.Args, g.log.end())
		}
	})
	return g
}

// running starts the command and waits until it is ready, and until it listens
// on the metrics address, which may come a little later.
func running(t *testing.T, cluster *devcluster.Cluster, flags ...string) *gleaner {
	t.Helper()
	g := start(t, cluster, flags...)
	g.ready()
	devtest.Eventually(t, patience, func() error {
		_, address, _ := strings.Cut(g.metrics, "://")
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	})
	return g
}

// freeAddress returns an address on loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// lives reports whether the process has not ended yet.
func (g *gleaner) lives() bool {
	select {
	case <-g.exited:
		return false
	default:
		return true
	}
}

// stop asks the process to end, which it has to do soon and well. It does
// nothing if it has ended already.
func (g *gleaner) stop() {
	g.Helper()
	if g.lives() {
		if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			g.Error(err)
		}
		select {
		case <-g.exited:
		case <-time.After(stopTime):
			g.Errorf("it has not ended %s after SIGTERM", stopTime)
			_ = g.cmd.Process.Kill()
			<-g.exited
		}
	}
	if code := g.cmd.ProcessState.ExitCode(); code != 0 && !g.killed {
		g.Errorf("it has ended with %s", g.cmd.ProcessState)
	}
}

// ready waits until /readyz is content.
func (g *gleaner) ready() {
	g.Helper()
	devtest.Eventually(g, patience, func() error {
		if !g.lives() {
			g.Fatalf("it has ended with %s", g.cmd.ProcessState)
		}
		response, err := http.Get(g.probes + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz answers %s", response.Status)
		}
		return nil
	})
}

// client takes any certificate: that of the process is made by itself.
var client = &http.Client{
	Timeout:   10 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   string
}

// get asks the metrics address for a path. Headers are name and value in turn.
func (g *gleaner) get(path string, headers ...string) answer {
	g.Helper()
	request, err := http.NewRequestWithContext(g.Context(), http.MethodGet, g.metrics+path, nil)
	if err != nil {
		g.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		g.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		g.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

// decode reads an answer of JSON.
func decode[T any](t *testing.T, a answer) (value T) {
	t.Helper()
	if a.code != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("answered %d, %s: %s", a.code, a.header.Get("Content-Type"), a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// records returns the decisions, or those about one object.
func (g *gleaner) records(uid types.UID, headers ...string) []record.Entry {
	g.Helper()
	return decode[struct{ Items []record.Entry }](g.T, g.get("/debug/gc/records?uid="+string(uid), headers...)).Items
}

// recorded waits for the record of an object's deletion, which is made after it: the
// object is gone before that.
func (g *gleaner) recorded(uid types.UID) {
	g.Helper()
	devtest.Eventually(g, patience, func() error {
		if found := g.records(uid); len(found) != 1 {
			return fmt.Errorf("it has recorded %v", found)
		}
		return nil
	})
}

// metric returns the sum of a metric's values that have these labels; false if
// there are none.
func (g *gleaner) metric(name string, labels ...string) (sum float64, ok bool) {
	g.Helper()
	for line := range strings.Lines(g.get("/metrics").body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(series, name+"{") {
			if series, value, _ = strings.Cut(strings.TrimSpace(line), " "); series != name {
				continue
			}
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			g.Fatalf("%s: %v", line, err)
		}
		sum, ok = sum+v, true
	}
	return sum, ok
}

// decided returns the log lines about decisions on one object, or on all.
func (g *gleaner) decided(uid types.UID) []map[string]any {
	g.Helper()
	var found []map[string]any
	for _, line := range g.log.lines() {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			g.Errorf("no JSON in the log: %s", line)
			continue
		}
		if fields["msg"] == "Decided" && (uid == "" || fields["uid"] == string(uid)) {
			found = append(found, fields)
		}
	}
	return found
}

// logbook keeps what a process says.
type logbook struct {
	mu   sync.Mutex // covers text
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines returns all whole lines so far.
func (l *logbook) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(l.text.String(), "\n")
	return lines[:len(lines)-1]
}

// end returns the last lines.
func (l *logbook) end() string {
	lines := l.lines()
	return strings.Join(lines[max(0, len(lines)-50):], "\n")
}

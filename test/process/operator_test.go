package process

import (
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
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/test/program"
)

const (
	timeout = 2 * time.Minute

	// stopTime is how long a process may take to end on a busy machine. What does not
	// end by itself is given up after the 30 seconds of the manager, and then the process
	// fails.
	stopTime = timeout
)

// operator is a running operator process.
type operator struct {
	*testing.T
	process *program.Process
	metrics string // address of /metrics and /debug/gc, with the scheme
	probes  string // address of /healthz and /readyz, with the scheme
}

// startOperator starts the operator, without a canary, leader election and authorization of requests unless
// the flags change that. It is stopped when the test ends.
func startOperator(t *testing.T, cluster *devcluster.Cluster, flags ...string) *operator {
	t.Helper()
	metrics, probes, scheme := devtest.FreeAddress(t), devtest.FreeAddress(t), "http://"
	if slices.Contains(flags, "--insecure-debug=false") {
		scheme = "https://"
	}
	process, err := program.Start(exec.Command(gleaner.Path(t), append([]string{
		"run", "--kubeconfig=" + cluster.Kubeconfig(), "--canary-timeout=0", "--leader-elect=false", "--insecure-debug",
		"--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + probes,
	}, flags...)...))
	if err != nil {
		t.Fatal(err)
	}
	g := &operator{T: t, process: process, metrics: scheme + metrics, probes: "http://" + probes}
	t.Cleanup(func() {
		g.stop()
		if t.Failed() {
			t.Logf("process %d, %v:\n%s", process.PID(), flags, process.Log.Tail(50))
		}
	})
	return g
}

// startReady starts the operator and waits until it is ready and listens
// on the metrics address, which may be a little later.
func startReady(t *testing.T, cluster *devcluster.Cluster, flags ...string) *operator {
	t.Helper()
	g := startOperator(t, cluster, flags...)
	g.waitUntilReady()
	devtest.Eventually(t, timeout, func() error {
		_, address, _ := strings.Cut(g.metrics, "://")
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	})
	return g
}

// stop sends SIGTERM, and checks that the process ends soon and successfully. It does
// nothing if it has ended already.
func (g *operator) stop() {
	g.Helper()
	if err := g.process.Stop(stopTime); err != nil {
		g.Error(err)
	}
}

// waitUntilReady waits until /readyz returns 200.
func (g *operator) waitUntilReady() {
	g.Helper()
	devtest.Eventually(g, timeout, func() error {
		if err := g.process.Ended(); err != nil {
			g.Fatal(err)
		}
		response, err := http.Get(g.probes + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", response.Status)
		}
		return nil
	})
}

// client accepts any certificate: the process has a self-signed one.
var client = &http.Client{
	Timeout:   timeout,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

// httpResult is an HTTP response.
type httpResult struct {
	code   int
	header http.Header
	body   string
}

// get sends a request to the metrics address. Headers alternate between name and value.
func (g *operator) get(path string, headers ...string) httpResult {
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
	return httpResult{response.StatusCode, response.Header, string(body)}
}

// decode parses a JSON response.
func decode[T any](t *testing.T, a httpResult) (value T) {
	t.Helper()
	if a.code != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("got %d, %s: %s", a.code, a.header.Get("Content-Type"), a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// records returns the decision records, of one object if it has a UID.
func (g *operator) records(uid types.UID, headers ...string) []record.Entry {
	g.Helper()
	return decode[struct{ Items []record.Entry }](g.T, g.get("/debug/gc/records?uid="+string(uid), headers...)).Items
}

// waitForRecord waits for the record of an object's deletion, which is made after
// the object is gone. An object that was queued again while it was being deleted has a
// second record: that it is gone already.
func (g *operator) waitForRecord(uid types.UID) {
	g.Helper()
	devtest.Eventually(g, timeout, func() error {
		found := g.records(uid)
		if !slices.ContainsFunc(found, func(e record.Entry) bool { return e.Action == record.Delete && e.Result == "Done" }) {
			return fmt.Errorf("records are %v", found)
		}
		return nil
	})
}

// metric returns the sum of a metric's values with these labels; false if
// there are none.
func (g *operator) metric(name string, labels ...string) (sum float64, ok bool) {
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

// decisionLines returns the log lines about decisions, about one object if it has a UID.
func (g *operator) decisionLines(uid types.UID) []map[string]any {
	g.Helper()
	var found []map[string]any
	for _, line := range g.process.Log.Lines() {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			g.Errorf("log line is not JSON: %s", line)
			continue
		}
		if fields["msg"] == "Decided" && (uid == "" || fields["uid"] == string(uid)) {
			found = append(found, fields)
		}
	}
	return found
}

// waitForLog waits until the process has logged a line with this message.
func (g *operator) waitForLog(message string) {
	g.Helper()
	devtest.Eventually(g, timeout, func() error {
		for _, line := range g.process.Log.Lines() {
			if strings.Contains(line, `"msg":"`+message+`"`) {
				return nil
			}
		}
		return fmt.Errorf("log has no line %q", message)
	})
}

package process

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/pins"
)

// stepsModule is a module that takes two steps over HTTP, keeps the first in its state,
// and writes a ConfigMap before it is done.
const stepsModule = `package gleaner

import rego.v1

step(n) := {"id": n, "http": {"method": "POST", "url": sprintf("%s/%s", [input.policy.settings.url, n]), "headers": {"Idempotency-Key": input.idempotencyKey}}}

copy := {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy", "namespace": input.object.metadata.namespace}}

default finalize := {"decision": "Wait", "after": "20ms"}

finalize := {"decision": "Act", "intents": [step("one")]} if {
	not input.state
	not input.results.one
} else := {"decision": "Wait", "after": "20ms", "state": {"one": true}} if {
	not input.state
	input.results.one.http.status == 200
} else := {"decision": "Act", "intents": [step("two"), {"id": "copy", "create": {"object": copy}}]} if {
	input.state.one
	not input.results.two
} else := {"decision": "Done"} if {
	input.results.two.http.status == 200
	input.results.copy.object
} else := {"decision": "Done"} if {
	input.results.two.http.status == 200
	input.results.copy.error.reason == "AlreadyExists"
}
`

// killer kills the operator the first time that it reaches a point: before or after
// one of its external effects.
type killer struct {
	mu      sync.Mutex // covers the fields below
	target  *operator
	points  []string // at which the operator was killed
	effects map[string]int
}

// at runs an effect, and kills the operator before it the first time, and
// after it the second time.
func (k *killer) at(point string, happen func()) {
	if k.shouldKill("before " + point) {
		return
	}
	happen()
	k.shouldKill("after " + point)
}

func (k *killer) shouldKill(point string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.points, point) || k.target == nil {
		return false
	}
	k.points = append(k.points, point)
	k.target.process.Kill()
	k.target = nil
	return true
}

// setTarget sets the process to kill.
func (k *killer) setTarget(g *operator) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.target = g
}

// The operator is killed before and after each external effect of a finalizer:
// each HTTP call, and each write to the API server.
func TestSIGKILL_AtEveryStepOfAFinalizer(t *testing.T) {
	cluster := newCluster(t)
	config := cluster.RESTConfig()
	createCRDs(t, config)
	ns := devtest.Namespace(t, config)
	k := &killer{effects: map[string]int{}}
	const secret = "open-sesame-51c9"
	site := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != secret {
			t.Errorf("called without the token: %v", r.Header)
		}
		k.at("the call "+r.URL.Path, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.effects[r.URL.Path+" "+r.Header.Get("Idempotency-Key")]++
		})
	}))
	defer site.Close()
	kubeconfig := proxyKubeconfig(t, cluster, func(r *http.Request, pass func()) {
		path := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"+ns)
		if r.Method == http.MethodGet || !strings.HasPrefix(path, "/configmaps") {
			pass()
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		what := "the write " + r.Method + " " + path
		if strings.Contains(string(body), `"finalizers"`) {
			what += " of finalizers"
		}
		k.at(what, pass)
	})
	applyAll(t, cluster, ns, fmt.Sprintf(finalizing, indent(stepsModule), site.URL, secret))
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(ns)
	if err := maps.Delete(t.Context(), "o", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := func() bool {
		_, err := maps.Get(t.Context(), "o", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
	for !gone() {
		g := startOperator(t, cluster, "--kubeconfig="+kubeconfig, "--finalizer-networks=127.0.0.0/8")
		k.setTarget(g)
		devtest.Eventually(t, timeout, func() error {
			if g.process.IsRunning() { // also after the last write
				return errors.New("process is not killed")
			}
			return nil
		})
		k.setTarget(nil)
		if output := strings.Join(g.process.Log.Lines(), "\n"); strings.Contains(output, secret) {
			t.Errorf("secret is disclosed in the log:\n%s", output)
		}
	}
	t.Logf("killed %q, and done %v", k.points, k.effects)
	if len(k.points) < 10 {
		t.Errorf("killed at only %d points", len(k.points))
	}
	if len(k.effects) != 2 { // no third with another key
		t.Errorf("done: %v", k.effects)
	}
	if _, err := maps.Get(t.Context(), "copy", metav1.GetOptions{}); err != nil {
		t.Errorf("read the copy: %v", err)
	}
}

const finalizing = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: finalizer}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: finalizer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: finalizer}]
---
apiVersion: v1
kind: Secret
metadata: {name: token}
stringData: {header: %[3]s}
---
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: steps}
spec:
  rego:
    inline: |
%[1]s
---
apiVersion: gleaner.dev/v1alpha1
kind: Finalizer
metadata: {name: steps}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: steps}
  mode: Enforce
  settings: {url: "%[2]s"}
  serviceAccount: {name: finalizer}
  grants:
    write: [{apiGroups: [""], resources: [configmaps], verbs: [create]}]
    http: [{url: "%[2]s/*", methods: [POST], addresses: [127.0.0.0/8], headersFrom: [{header: Authorization, secretKeyRef: {name: token, key: header}}]}]
  retry: {initial: 1s, max: 1s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: o, finalizers: [NS.gleaner.dev/steps]}
`

func indent(text string) string { return "      " + strings.ReplaceAll(text, "\n", "\n      ") }

// applyAll applies a text with kubectl.
func applyAll(t *testing.T, cluster *devcluster.Cluster, ns, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "all.yaml")
	text = strings.ReplaceAll(text, "NS", ns)
	text = strings.ReplaceAll(text, "kind: ServiceAccount, name: finalizer}", "kind: ServiceAccount, name: finalizer, namespace: "+ns+"}")
	if err := os.WriteFile(file, []byte(pins.Manifest(text)), 0o600); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() error { // types are served a moment after their definition
		out, err := cluster.Kubectl(t.Context(), "apply", "--server-side", "-n", ns, "-f", file)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// proxyKubeconfig returns a kubeconfig for a proxy of the API server that calls
// a function for each request.
func proxyKubeconfig(t *testing.T, cluster *devcluster.Cluster, ask func(r *http.Request, pass func())) string {
	t.Helper()
	admin := cluster.RESTConfig()
	target, err := url.Parse(admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(admin)
	if err != nil {
		t.Fatal(err)
	}
	silent := log.New(io.Discard, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1, ErrorLog: silent,
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ask(r, func() { proxy.ServeHTTP(w, r) })
	}))
	server.Config.ErrorLog = silent
	server.Start()
	t.Cleanup(server.Close)
	return kubeconfig(t, &rest.Config{Host: server.URL})
}

package attacks

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
	"github.com/gleaner-dev/gleaner/test/attacks/payload"
)

// Limits on the operator's writes and TokenReviews that a finalizer and a client without a
// token may cause per second; the allowance is the burst.
const (
	writesPerSecond  = 20
	reviewsPerSecond = 20
	allowance        = 60
)

// countModule is a module that never finishes, and changes its state in each
// evaluation.
const countModule = `package gleaner

default n := 0

n := input.state.n

finalize := {"decision": "Wait", "after": "1ms", "state": {"n": n + 1}}
`

func TestFinalizer_WaitingAMillisecond_IsRateLimited(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		w := newEnv(t, m)
		d := newWatchdog(w)
		w.createFinalizer(w.tenant, w.attacker, "counting", countModule)
		const objects = 3
		for i := range objects {
			w.createFinalized(w.tenant, w.attacker, "counted-"+strconv.Itoa(i), "counting")
		}
		before, began := w.requests("configmaps", "PATCH"), time.Now()
		d.observe()
		took := time.Since(began)
		if n := w.requests("configmaps", "PATCH") - before; n > allowance+writesPerSecond*took.Seconds() {
			t.Errorf("%.0f writes for %d objects in %s, %.0f a second", n, objects, round(took), n/took.Seconds())
		} else {
			t.Logf("%.0f writes in %s", n, round(took))
		}
		d.finish()
	})
}

// createFinalizer creates a Finalizer with its own module, and waits until it is enforced.
func (w *env) createFinalizer(c *client, namespace, name, source string) {
	w.Helper()
	w.create(c, payload.Object("PolicyModule", namespace, name, map[string]any{"rego": map[string]any{"inline": source}}))
	finalizer := payload.Object("Finalizer", namespace, name, map[string]any{
		"resources": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}},
		"module":    map[string]any{"name": name},
		"needs":     "Reference",
		"mode":      "Enforce",
	})
	w.create(c, finalizer)
	if err := w.waitForEnforcing(w.admin, finalizer, timeout); err != nil {
		w.Fatal(err)
	}
}

// createFinalized creates an object with a finalizer, and deletes it.
func (w *env) createFinalized(c *client, namespace, name, finalizer string) *corev1.ConfigMap {
	w.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{namespace + ".gleaner.dev/" + finalizer}}}
	created, err := c.kube.CoreV1().ConfigMaps(namespace).Create(w.Context(), object, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { // it is not removed after the test
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		_, _ = w.admin.kube.CoreV1().ConfigMaps(namespace).Patch(cleanupContext(w.T), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	})
	w.delete(c, created)
	return created
}

// requests returns the number of requests that the API server has served.
func (w *env) requests(resource, verb string) float64 {
	w.Helper()
	text, err := w.admin.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="` + resource + `"[^}]*verb="` + verb + `"[^}]*\} (\S+)$`)
	sum := 0.0
	for _, match := range line.FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			w.Fatal(err)
		}
		sum += n
	}
	return sum
}

func TestMetrics_InvalidTokens_CauseFewTokenReviews(t *testing.T) {
	w := newEnv(t, primary)
	d := newWatchdog(w)
	before, began, stop := w.requests("tokenreviews", "POST"), time.Now(), make(chan struct{})
	var flood sync.WaitGroup
	for i := range 16 {
		flood.Go(func() { requestWithInvalidTokens(w.operator.metrics, i, stop) })
	}
	d.checkCollection(attackLength())
	took := time.Since(began)
	n := w.requests("tokenreviews", "POST") - before
	close(stop)
	flood.Wait()
	t.Logf("%.0f TokenReviews in %s", n, round(took))
	if n > allowance+reviewsPerSecond*took.Seconds() {
		t.Errorf("clients without a valid token caused %.0f TokenReviews in %s, %.0f a second", n, round(took), n/took.Seconds())
	}
	d.finish()
}

// requestWithInvalidTokens requests metrics with a different token each time.
func requestWithInvalidTokens(address string, client int, stop chan struct{}) {
	c := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer c.CloseIdleConnections()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		request, err := http.NewRequest(http.MethodGet, "https://"+address+"/metrics", nil)
		if err != nil {
			return
		}
		request.Header.Set("Authorization", fmt.Sprintf("Bearer token-%d-%d", client, n))
		response, err := c.Do(request)
		if err != nil {
			continue // the operator may shed load
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

// A registry that accepts connections and never responds.
func TestModules_OfASlowServer_DelayNoOthers(t *testing.T) {
	forEachMode(t, func(t *testing.T, m mode) {
		w := newEnv(t, m)
		d := newWatchdog(w)
		address := unresponsiveServer(t)
		for i := range 8 {
			w.createClusterModule(fmt.Sprintf("slow-%d-%s", i, w.attacker), fmt.Sprintf("%s/slow/module-%d@sha256:%s", address, i, strings.Repeat("a", 64)))
		}
		d.observe()
		d.finish()
	})
}

// createClusterModule creates a ClusterPolicyModule from an image: others may not be fetched from
// loopback.
func (w *env) createClusterModule(name, image string) {
	w.Helper()
	module := payload.Object("ClusterPolicyModule", "", name, map[string]any{"wasm": map[string]any{"image": image}})
	w.create(w.admin, module)
	w.Cleanup(func() {
		if err := w.admin.resource(module).Delete(cleanupContext(w.T), name, metav1.DeleteOptions{}); err != nil {
			w.Error(err)
		}
	})
}

// unresponsiveServer returns the address of a server that accepts connections and never responds.
func unresponsiveServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, connection)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, connection := range open {
			_ = connection.Close()
		}
	})
	return listener.Addr().String()
}

// The names of 13 million functions do not compress, so they come from a registry.
func TestModules_WithManyNames_DoNotAffectOthers(t *testing.T) {
	if !*long {
		t.Skip("the module has 64 MiB: run with -long")
	}
	forEachMode(t, func(t *testing.T, m mode) {
		w := newEnv(t, m)
		image := pushModule(t, payload.ManyNames(0))
		d := newWatchdog(w)
		for i := range 4 {
			w.createClusterModule(fmt.Sprintf("names-%d-%s", i, w.attacker), image)
		}
		d.observe()
		d.finish()
	})
}

// pushModule pushes a module to a registry on loopback and returns its reference.
func pushModule(t *testing.T, code []byte) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	reference, err := oci.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/attacks/module:v1")
	if err != nil {
		t.Fatal(err)
	}
	artifact, err := oci.PackWasm(oci.File{Name: "module.wasm", Data: code})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := oci.NewRepository(server.Client(), reference, oci.Credential{}).Push(t.Context(), artifact, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return reference.ByDigest(digest).String()
}

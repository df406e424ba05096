package policies

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// endlessRegistry returns the address of a registry whose responses never end.
func endlessRegistry(t *testing.T) string {
	t.Helper()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	return strings.TrimPrefix(server.URL, "http://")
}

// shortTimeout is shorter than the timeout of the registry, which is a minute.
const shortTimeout = 40 * time.Second

func TestUnresponsiveRegistry_DelaysNoOtherModule(t *testing.T) {
	w := newEnv(t)
	slow := w.apply(`
kind: ClusterPolicyModule
metadata: {name: slow-NS}
spec: {wasm: {image: "` + endlessRegistry(t) + `/m@sha256:` + strings.Repeat("a", 64) + `"}}`)
	w.waitForCondition(slow, "Fetched", metav1.ConditionFalse, "Loading", "it is being fetched")
	waiting := w.applyPolicy(`
kind: GCPolicy
metadata: {name: waiting}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  module: {kind: ClusterPolicyModule, name: slow-NS}
  mode: Enforce`)
	w.waitForCondition(waiting, "ModuleReady", metav1.ConditionFalse, "Loading", "meanwhile the objects that it governs are kept")
	secretOwner := w.createConfigMap("secret-owner")
	secret := w.createObject("Secret", "kept", nil, secretOwner)
	w.delete(secretOwner)
	w.expectKept(secret, "PolicyFault")

	began := time.Now()
	p := w.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: keeping-NS}
spec:` + selectingPolicy + `
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	w.applyKeepPolicy()
	f := w.applyFinalizer("done", doneModule, "attach: true")
	w.waitForCondition(f, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	if took := time.Since(began); took > shortTimeout {
		t.Errorf("it took %s", took)
	}
}

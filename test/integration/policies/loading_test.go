package policies

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// endless is the address of a registry whose answers never end.
func endless(t *testing.T) string {
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

// soon is less than it takes until the registry is given up, which is a minute.
const soon = 40 * time.Second

func TestAModuleWhoseServerNeverAnswersDelaysNobodyElse(t *testing.T) {
	w := newWorld(t)
	slow := w.apply(`
kind: ClusterPolicyModule
metadata: {name: slow-NS}
spec: {wasm: {image: "` + endless(t) + `/m@sha256:` + strings.Repeat("a", 64) + `"}}`)
	w.says(slow, "Fetched", metav1.ConditionFalse, "Loading", "it is being fetched")
	waiting := w.policy(`
kind: GCPolicy
metadata: {name: waiting}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  module: {kind: ClusterPolicyModule, name: slow-NS}
  mode: Enforce`)
	w.says(waiting, "ModuleReady", metav1.ConditionFalse, "Loading", "meanwhile the objects that it governs are kept")
	secretOwner := w.make("secret-owner")
	secret := w.object("Secret", "kept", nil, secretOwner)
	w.delete(secretOwner)
	w.stays(secret, "PolicyAtFault")

	began := time.Now()
	p := w.policy(`
kind: ClusterGCPolicy
metadata: {name: keeping-NS}
spec:` + selecting + `
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	w.keeps()
	f := w.finalizer("done", done, "attach: true")
	w.says(f, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	if took := time.Since(began); took > soon {
		t.Errorf("it took %s", took)
	}
}

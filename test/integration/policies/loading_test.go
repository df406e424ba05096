package policies

import (
	"net"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mute is the address of a server that takes connections, and never says a word.
func mute(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String() // the kernel accepts for it
}

// soon is less than it takes until the server is given up, which is a minute.
const soon = 30 * time.Second

func TestAModuleWhoseServerNeverAnswersDelaysNobodyElse(t *testing.T) {
	w := newWorld(t)
	slow := w.apply(`
kind: ClusterPolicyModule
metadata: {name: slow-NS}
spec: {wasm: {url: "https://` + mute(t) + `/m.wasm"}}`)
	w.says(slow, "Fetched", metav1.ConditionFalse, "Loading", "it is being fetched")
	waiting := w.policy(`
kind: GCPolicy
metadata: {name: waiting}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  module: {kind: ClusterPolicyModule, name: slow-NS}
  mode: Enforce
  onFault: Default`)
	w.says(waiting, "ModuleReady", metav1.ConditionFalse, "Loading", "meanwhile the objects that it governs are kept")
	secretOwner := w.make("secret-owner")
	secret := w.object("Secret", "kept", nil, secretOwner)
	w.delete(secretOwner)

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
	w.stays(secret, "PolicyAtFault")
	if took := time.Since(began); took > soon {
		t.Errorf("it took %s", took)
	}
	w.says(slow, "Fetched", metav1.ConditionFalse, "Loading", "")
}

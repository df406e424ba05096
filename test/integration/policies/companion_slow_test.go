package policies

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// requestBlocker blocks some of the operator's requests.
type requestBlocker struct {
	mu      sync.Mutex // covers what follows
	pattern string     // method and path suffix of the requests to block; "": none
	blocked int
	release chan struct{}
}

func (b *requestBlocker) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		if release, holds := b.matches(r); holds {
			select {
			case <-release:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		return next.RoundTrip(r)
	})
}

func (b *requestBlocker) matches(r *http.Request) (release chan struct{}, holds bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pattern == "" || !strings.HasSuffix(r.Method+" "+r.URL.Path, b.pattern) || !strings.HasPrefix(b.pattern, r.Method) {
		return nil, false
	}
	b.blocked++
	return b.release, true
}

func (b *requestBlocker) block(on string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pattern, b.blocked, b.release = on, 0, make(chan struct{})
}

func (b *requestBlocker) unblock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pattern != "" {
		close(b.release)
	}
	b.pattern = ""
}

// waitForBlocked waits until a request is blocked.
func (o *dedicatedEnv) waitForBlocked(b *requestBlocker) {
	o.Helper()
	o.eventually(func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.blocked == 0 {
			return errorf("no request matching %q is blocked", b.pattern)
		}
		return nil
	})
}

// While the API server is slow to answer the operator, the operator still answers the
// API server in time, which gives up after three seconds: the built-in collector gets
// a conflict and not a webhook failure.
func TestSlowAPIServer_WebhookRefusesInTime(t *testing.T) {
	o := newOperatorEnv(t)
	o.stopOperator()
	b := &requestBlocker{}
	o.config.Wrap(b.wrap)
	o.startOperator()
	o.createReader("configmaps")
	o.applyPolicy(`
kind: PolicyModule
metadata: {name: keeps}
spec:
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Orphan"} if not input.object.data.disposable`)
	o.applyPolicy(`
kind: GCPolicy
metadata: {name: keeps}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: keeps}
  serviceAccount: {name: reader}
  mode: Enforce`)
	o.waitForWebhook(nil)
	for name, slow := range map[string]string{
		"to show the owner":  "GET /api/v1/namespaces/NS/secrets/owner",
		"to show the object": "GET /api/v1/namespaces/NS/configmaps/kept",
		"to take a write":    "PATCH /api/v1/namespaces/NS/configmaps/kept",
	} {
		t.Run(name, func(t *testing.T) {
			o := &dedicatedEnv{env: o.env, cluster: o.cluster}
			outer := o.T
			o.T = t
			defer func() { o.T = outer }()
			owner := o.createObject("Secret", "owner", nil)
			kept, ungoverned := o.createConfigMap("kept", owner), o.createObject("Secret", "ungoverned", nil, owner)
			o.patch(kept, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "`+string(owner.GetUID())+`", "blockOwnerDeletion": true}]}}`)
			b.block(strings.ReplaceAll(slow, "NS", o.ns))
			defer b.unblock()
			o.deleteWithPolicy(owner, metav1.DeletePropagationForeground)
			o.waitForBlocked(b)
			for range 3 {
				if err := o.deleteAsCollector(kept); !apierrors.IsConflict(err) {
					t.Fatalf("the built-in collector got: %v", err)
				}
			}
			o.waitForDeletion(ungoverned)
			if live := o.get(kept); live.GetName() == "" || live.GetDeletionTimestamp() != nil {
				t.Fatalf("object is gone or terminating; %s", o.describeDecisions(kept))
			}
			b.unblock()
			o.waitForDeletion(owner)
			o.waitForNoOwners(kept)
			o.forceDelete(kept)
			o.waitForDeletion(kept)
		})
	}
}

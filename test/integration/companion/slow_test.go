package policies

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// brake holds up some of the operator's requests.
type brake struct {
	mu      sync.Mutex // covers what follows
	on      string     // the method and the end of the path of those it holds; "": none
	held    int
	release chan struct{}
}

func (b *brake) wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		if release, holds := b.holds(r); holds {
			select {
			case <-release:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		return next.RoundTrip(r)
	})
}

func (b *brake) holds(r *http.Request) (release chan struct{}, holds bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.on == "" || !strings.HasSuffix(r.Method+" "+r.URL.Path, b.on) || !strings.HasPrefix(b.on, r.Method) {
		return nil, false
	}
	b.held++
	return b.release, true
}

func (b *brake) put(on string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on, b.held, b.release = on, 0, make(chan struct{})
}

func (b *brake) lift() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.on != "" {
		close(b.release)
	}
	b.on = ""
}

// holding waits until a request is held up.
func (o *operation) holding(b *brake) {
	o.Helper()
	o.eventually(func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.held == 0 {
			return errorf("nothing is held up by %q", b.on)
		}
		return nil
	})
}

// While the API server is slow to answer the operator, the operator is not slow to
// answer the API server, which gives up after three seconds: the other collector is
// told of a conflict, and not that the webhook failed.
func TestWhileTheAPIServerIsSlowTheWebhookRefusesInTime(t *testing.T) {
	o := newOperation(t)
	o.end()
	b := &brake{}
	o.config.Wrap(b.wrap)
	o.start()
	o.reader("configmaps")
	o.policy(`
kind: PolicyModule
metadata: {name: keeps}
spec:
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Orphan"} if input.object.metadata.name`)
	o.policy(`
kind: GCPolicy
metadata: {name: keeps}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: keeps}
  serviceAccount: {name: reader}
  mode: Enforce`)
	o.asksAbout(nil)
	for name, slow := range map[string]string{
		"to show the owner":  "GET /api/v1/namespaces/NS/secrets/owner",
		"to show the object": "GET /api/v1/namespaces/NS/configmaps/kept",
		"to take a write":    "PATCH /api/v1/namespaces/NS/configmaps/kept",
	} {
		t.Run(name, func(t *testing.T) {
			o := &operation{world: o.world, cluster: o.cluster}
			outer := o.T
			o.T = t
			defer func() { o.T = outer }()
			owner := o.object("Secret", "owner", nil)
			kept, ungoverned := o.make("kept", owner), o.object("Secret", "ungoverned", nil, owner)
			o.patch(kept, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "`+string(owner.GetUID())+`", "blockOwnerDeletion": true}]}}`)
			b.put(strings.ReplaceAll(slow, "NS", o.ns))
			defer b.lift()
			o.deleteBy(owner, metav1.DeletePropagationForeground)
			o.holding(b)
			for range 3 {
				if err := o.asCollector(kept); !apierrors.IsConflict(err) {
					t.Fatalf("the other collector is told: %v", err)
				}
			}
			o.goes(ungoverned)
			if live := o.get(kept); live.GetName() == "" || live.GetDeletionTimestamp() != nil {
				t.Fatalf("it is gone, or going; %s", o.decisions(kept))
			}
			b.lift()
			o.goes(owner)
			o.free(kept)
			o.remove(kept)
			o.goes(kept)
		})
	}
}

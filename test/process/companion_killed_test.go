package process

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// governed are policies for Secrets, which decide about their dependents, and for
// ConfigMaps, which decide about them when they have no owner; with objects that they
// govern, by the label case.
const governed = `
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: once}
spec:
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Delete"} if input.state.asked
      else := {"decision": "Wait", "after": "1s", "state": {"asked": true}}
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: orphan}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  objectSelector: {matchLabels: {case: orphan}}
  fixed: {propagate: {decision: Orphan, dependents: [{kind: ServiceAccount, decision: Delete}]}}
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: foreground}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  objectSelector: {matchLabels: {case: foreground}}
  fixed: {propagate: {decision: Foreground}}
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {case: keep}}
  fixed: {collect: {decision: Orphan}}
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: wait}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {case: wait}}
  needs: Reference
  module: {name: once}
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: how}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {case: how}}
  fixed: {collect: {decision: Delete, propagation: Orphan}}
  mode: Enforce
---
{apiVersion: v1, kind: Secret, metadata: {name: orphaning, labels: {case: orphan}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: waiting, labels: {case: foreground}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}
`

// dependents are created after their owners.
const dependents = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: orphaned, OWNER(v1,Secret,orphaning)}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: excepted, OWNER(v1,Secret,orphaning)}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: blocking, OWNER(v1,Secret,waiting)}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, labels: {case: keep}, OWNER(v1,ConfigMap,plain)}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: waited, labels: {case: wait}, OWNER(v1,ConfigMap,plain)}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: middle, labels: {case: how}, OWNER(v1,ConfigMap,plain)}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: ungoverned, OWNER(v1,ConfigMap,plain)}}
`

// belowManifest is created after its owner.
const belowManifest = `{apiVersion: v1, kind: ConfigMap, metadata: {name: below, OWNER(v1,ConfigMap,middle)}}`

var (
	coreSecrets  = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	coreMaps     = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	coreAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
)

// objectWatcher watches the objects of a namespace.
type objectWatcher struct {
	*testing.T
	client metadata.Interface
	ns     string

	mu          sync.Mutex        // covers the fields below
	deleted     map[string]uint64 // resourceVersions of deletions, by object name
	terminating map[string]bool
}

func newObjectWatcher(t *testing.T, config *rest.Config, ns string) *objectWatcher {
	t.Helper()
	o := &objectWatcher{T: t, client: metadata.NewForConfigOrDie(config), ns: ns, deleted: map[string]uint64{}, terminating: map[string]bool{}}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for _, resource := range []schema.GroupVersionResource{coreSecrets, coreMaps, coreAccounts} {
		w, err := o.client.Resource(resource).Namespace(ns).Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { // until the test's context ends, before its cleanup
			for event := range w.ResultChan() {
				o.record(event)
			}
		})
	}
	return o
}

func (o *objectWatcher) record(event watch.Event) {
	meta, ok := event.Object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if event.Type == watch.Deleted {
		version, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
		if err != nil {
			o.Error(err)
		}
		o.deleted[meta.Name] = version
	}
	if meta.DeletionTimestamp != nil || event.Type == watch.Deleted {
		o.terminating[meta.Name] = true
	}
}

// deletedAt returns the resourceVersion of an object's deletion.
func (o *objectWatcher) deletedAt(name string) (version uint64, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	version, gone = o.deleted[name]
	return version, gone
}

// wasDeleted reports whether an object was ever terminating or deleted.
func (o *objectWatcher) wasDeleted(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.terminating[name]
}

// checkSettled returns an error unless the objects are in the final state that the policies require.
func (o *objectWatcher) checkSettled() error {
	for _, name := range []string{"orphaning", "excepted", "waiting", "blocking", "plain", "waited", "middle", "ungoverned"} {
		if _, gone := o.deletedAt(name); !gone {
			return fmt.Errorf("%s still exists", name)
		}
	}
	for _, name := range []string{"orphaned", "kept", "below"} {
		if o.wasDeleted(name) {
			o.Fatalf("%s was deleted", name)
		}
		live, err := o.client.Resource(coreMaps).Namespace(o.ns).Get(o.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(live.OwnerReferences) != 0 {
			return fmt.Errorf("%s still has an owner reference to %s", name, live.OwnerReferences[0].Name)
		}
	}
	return nil
}

// applyWithOwners applies a text in which OWNER(version,kind,name) is replaced by a blocking reference to that
// owner.
func (b *companionEnv) applyWithOwners(text string) {
	b.Helper()
	client := metadata.NewForConfigOrDie(b.cluster.RESTConfig())
	for _, kind := range []struct {
		name     string
		resource schema.GroupVersionResource
	}{{"Secret", coreSecrets}, {"ConfigMap", coreMaps}} {
		list, err := client.Resource(kind.resource).Namespace(b.ns).List(b.Context(), metav1.ListOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for _, o := range list.Items {
			reference := fmt.Sprintf("ownerReferences: [{apiVersion: v1, kind: %s, name: %s, uid: %s, blockOwnerDeletion: true}]", kind.name, o.Name, o.UID)
			text = strings.ReplaceAll(text, fmt.Sprintf("OWNER(v1,%s,%s)", kind.name, o.Name), reference)
		}
	}
	applyAll(b.T, b.cluster, b.ns, text)
}

// webhookCalled reports whether the API server calls the webhook for deletes of the built-in collector,
// with a dry run as its user.
func (b *companionEnv) webhookCalled(name string) bool {
	as := b.cluster.RESTConfig()
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:generic-garbage-collector", Groups: []string{"system:masters"}}
	maps := dynamic.NewForConfigOrDie(as).Resource(coreMaps).Namespace(b.ns)
	return maps.Delete(b.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}) != nil
}

// describeWrite describes the operator's writes to objects of a namespace.
func describeWrite(t *testing.T, r *http.Request, ns string) (what string, is bool) {
	path, found := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+ns)
	if r.Method == http.MethodGet || !found || strings.HasPrefix(path, "/events") {
		return "", false
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(strings.NewReader(string(data)))
	what = "the write " + r.Method + " " + path
	for _, detail := range []string{"finalizers", "gleaner.dev/hold", "ownerReferences", "annotations", "Orphan", "Foreground"} {
		if strings.Contains(string(data), detail) {
			what += " " + detail
		}
	}
	return what, true
}

// The companion is killed before and after each of its writes, while the built-in
// collector keeps running.
func TestCompanion_SIGKILL_AtEveryStep(t *testing.T) {
	b := newIdleCompanionEnv(t)
	k := &killer{}
	kubeconfig := proxyKubeconfig(t, b.cluster, func(r *http.Request, pass func()) {
		if what, is := describeWrite(t, r, b.ns); is {
			k.at(what, pass)
			return
		}
		pass()
	})
	applyAll(t, b.cluster, b.ns, governed)
	b.applyWithOwners(dependents)
	b.applyWithOwners(belowManifest)
	seen := newObjectWatcher(t, b.cluster.RESTConfig(), b.ns)
	flags := append(b.flags(), "--kubeconfig="+kubeconfig)
	deleted := false
	for seen.checkSettled() != nil {
		g := startOperator(t, b.cluster, flags...)
		k.setTarget(g)
		devtest.Eventually(t, 3*timeout, func() error {
			if !deleted {
				deleted = b.deleteOwners()
			}
			if err := seen.checkSettled(); err != nil && g.process.IsRunning() {
				return fmt.Errorf("process is not killed: %w", err)
			}
			return nil
		})
		k.setTarget(nil)
		if g.process.IsRunning() {
			g.process.Kill()
		}
	}
	waiting, _ := seen.deletedAt("waiting")
	if blocking, _ := seen.deletedAt("blocking"); waiting < blocking {
		t.Errorf("owner was deleted at version %d, before its blocking dependent at %d", waiting, blocking)
	}
	t.Logf("killed %q", k.points)
	if len(k.points) < 15 { // some writes were in progress when the process was killed at another
		t.Errorf("killed at only %d points", len(k.points))
	}
}

// deleteOwners deletes the owners once the governed ones have a hold and
// the webhook is effective. It reports whether it did.
func (b *companionEnv) deleteOwners() bool {
	client := metadata.NewForConfigOrDie(b.cluster.RESTConfig())
	for _, name := range []string{"orphaning", "waiting"} {
		live, err := client.Resource(coreSecrets).Namespace(b.ns).Get(b.Context(), name, metav1.GetOptions{})
		if err != nil || !slices.Contains(live.Finalizers, "gleaner.dev/hold") {
			return false
		}
	}
	if !b.webhookCalled("kept") {
		return false
	}
	for name, resource := range map[string]schema.GroupVersionResource{"orphaning": coreSecrets, "waiting": coreSecrets, "plain": coreMaps} {
		background := metav1.DeletePropagationBackground
		if err := client.Resource(resource).Namespace(b.ns).Delete(b.Context(), name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			b.Fatal(err)
		}
	}
	return true
}

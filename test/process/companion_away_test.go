package process

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// asking are policies of each of which the API server asks apart: one that keeps, one
// that has things go as they would without it, and one that has no say on what is
// called spared.
const asking = `
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
metadata: {name: usual}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {case: usual}}
  fixed: {collect: {decision: Delete}}
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: but-spared}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {case: conditions}}
  matchConditions: [{name: not-spared, expression: "object.metadata.name != 'spared'"}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}
`

const asked = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, labels: {case: keep}, OWNER(v1,ConfigMap,plain)}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: usual, labels: {case: usual}, OWNER(v1,ConfigMap,plain)}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: spared, labels: {case: conditions}, OWNER(v1,ConfigMap,plain)}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: governed, labels: {case: conditions}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: ungoverned, OWNER(v1,ConfigMap,plain)}}
`

// failedCalls are lines of the API server's metrics, one for each webhook.
var failedCalls = regexp.MustCompile(`(?m)^apiserver_admission_webhook_rejection_count\{[^}]*error_type="calling_webhook_error"[^}]*name="([^"]*veto\.gleaner\.dev)"[^}]*\} [1-9]`)

// The other collector does not come again at all here: it may wait a quarter of an
// hour after so many refusals.
func TestCompanion_WhatWasRefusedWhileItWasAwayIsSettledWithoutTheOtherCollector(t *testing.T) {
	b := newBeside(t)
	applyAll(t, b.cluster, b.ns, asking)
	b.applyOwned(asked)
	b.asksBy(3)
	b.inForce("kept", "usual", "governed")
	b.gleaner.kill()
	seen := newOnlooker(t, b.cluster.RESTConfig(), b.ns)
	maps := metadata.NewForConfigOrDie(b.cluster.RESTConfig()).Resource(coreMaps).Namespace(b.ns)
	if err := maps.Delete(t.Context(), "plain", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 3*patience, func() error {
		if _, gone := seen.gone("ungoverned"); !gone {
			return fmt.Errorf("what no policy selects is not collected")
		}
		return b.refused(3)
	})
	if err := b.cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kept", "usual", "spared"} {
		if seen.touched(name) {
			t.Fatalf("%s is deleted, and nobody was there to say so", name)
		}
	}
	b.run()
	devtest.Eventually(t, 3*patience, func() error {
		for _, name := range []string{"usual", "spared"} {
			if _, gone := seen.gone(name); !gone {
				return fmt.Errorf("%s is still there", name)
			}
		}
		live, err := maps.Get(t.Context(), "kept", metav1.GetOptions{})
		if err == nil && len(live.OwnerReferences) != 0 {
			err = fmt.Errorf("%s still names its owner", live.Name)
		}
		return err
	})
}

// asksBy waits until the API server is told of so many webhooks.
func (b *beside) asksBy(n int) {
	b.Helper()
	devtest.Eventually(b, 2*patience, func() error {
		c, err := b.configuration()
		if err != nil {
			return err
		}
		var names []string
		for _, w := range c.Webhooks {
			if !strings.HasPrefix(w.Name, "canary.") { // which tells who the other collector is
				names = append(names, w.Name)
			}
		}
		if len(names) != n {
			return fmt.Errorf("it is told of the webhooks %v", names)
		}
		return nil
	})
}

// inForce waits until objects are refused to the other collector: the API server has
// heard of the webhooks.
func (b *beside) inForce(names ...string) {
	b.Helper()
	devtest.Eventually(b, 2*patience, func() error {
		for _, name := range names {
			if !b.heard(name) {
				return fmt.Errorf("%s could be deleted", name)
			}
		}
		return nil
	})
}

// refused says whether calls of so many webhooks have failed for the other collector.
func (b *beside) refused(n int) error {
	text, err := b.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		return err
	}
	var names []string
	for _, found := range failedCalls.FindAllSubmatch(text, -1) {
		names = append(names, string(found[1]))
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) != n {
		return fmt.Errorf("calls of %q have failed", names)
	}
	return nil
}

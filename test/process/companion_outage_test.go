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

// companionPolicies are policies with a webhook each: one that keeps objects, one
// that decides as without a policy, and one that excludes the object
// named spared.
const companionPolicies = `
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

const companionObjects = `
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

// failedCalls matches the lines of the API server's metrics, one for each webhook.
var failedCalls = regexp.MustCompile(`(?m)^apiserver_admission_webhook_rejection_count\{[^}]*error_type="calling_webhook_error"[^}]*name="([^"]*veto\.gleaner\.dev)"[^}]*\} [1-9]`)

// The built-in collector's own retry is not waited for: it may take a quarter of an
// hour after this many refusals.
func TestCompanion_SettlesDeletesRefusedWhileItWasDown(t *testing.T) {
	b := newCompanionEnv(t)
	applyAll(t, b.cluster, b.ns, companionPolicies)
	b.applyWithOwners(companionObjects)
	b.waitForWebhooks(3)
	b.waitForEnforcement("kept", "usual", "governed")
	b.operator.process.Kill()
	seen := newObjectWatcher(t, b.cluster.RESTConfig(), b.ns)
	maps := metadata.NewForConfigOrDie(b.cluster.RESTConfig()).Resource(coreMaps).Namespace(b.ns)
	if err := maps.Delete(t.Context(), "plain", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 3*timeout, func() error {
		if _, gone := seen.deletedAt("ungoverned"); !gone {
			return fmt.Errorf("object that no policy selects is not collected")
		}
		return b.checkRefused(3)
	})
	if err := b.cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kept", "usual", "spared"} {
		if seen.wasDeleted(name) {
			t.Fatalf("%s was deleted without a decision of the companion", name)
		}
	}
	b.startOperator()
	devtest.Eventually(t, 3*timeout, func() error {
		for _, name := range []string{"usual", "spared"} {
			if _, gone := seen.deletedAt(name); !gone {
				return fmt.Errorf("%s still exists", name)
			}
		}
		live, err := maps.Get(t.Context(), "kept", metav1.GetOptions{})
		if err == nil && len(live.OwnerReferences) != 0 {
			err = fmt.Errorf("%s still has its owner reference", live.Name)
		}
		return err
	})
}

// waitForWebhooks waits until n webhooks are configured.
func (b *companionEnv) waitForWebhooks(n int) {
	b.Helper()
	devtest.Eventually(b, 2*timeout, func() error {
		c, err := b.webhookConfiguration()
		if err != nil {
			return err
		}
		var names []string
		for _, w := range c.Webhooks {
			if !strings.HasPrefix(w.Name, "canary.") { // discovers the collector user
				names = append(names, w.Name)
			}
		}
		if len(names) != n {
			return fmt.Errorf("configured webhooks: %v", names)
		}
		return nil
	})
}

// waitForEnforcement waits until the API server has read the webhooks, so that deletes by the built-in
// collector are refused.
func (b *companionEnv) waitForEnforcement(names ...string) {
	b.Helper()
	devtest.Eventually(b, 2*timeout, func() error {
		for _, name := range names {
			if !b.webhookCalled(name) {
				return fmt.Errorf("%s could be deleted", name)
			}
		}
		return nil
	})
}

// checkRefused returns an error unless calls of n webhooks have failed for the built-in collector.
func (b *companionEnv) checkRefused(n int) error {
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
		return fmt.Errorf("failed calls: %q", names)
	}
	return nil
}

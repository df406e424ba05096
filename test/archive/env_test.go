package archive

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"filippo.io/age"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/open"
	"github.com/gleaner-dev/gleaner/test/objects"
)

// env is a namespace with objects of a user.
type env struct {
	*objects.Env
	*testbed
}

func newEnv(t *testing.T, b *testbed) *env {
	t.Helper()
	return &env{objects.New(t, b.user, devtest.Namespace(t, b.user)), b}
}

// policy creates a ClusterArchivePolicy for objects of this namespace, and waits until it archives
// them. The rest of its spec is YAML, as a flow mapping without braces.
func (e *env) policy(name, spec string) *unstructured.Unstructured {
	e.Helper()
	p := e.Create(fmt.Sprintf(`
apiVersion: gleaner.dev/v1alpha1
kind: ClusterArchivePolicy
metadata: {name: p%s-%s}
spec: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}, %s}`, e.Namespace[max(0, len(e.Namespace)-30):], name, e.Namespace, spec))
	policies := e.Of(p)
	e.Cleanup(func() { // what it holds is of no concern to the operators of later tests
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), timeout)
		defer cancel()
		if err := policies.Delete(ctx, p.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.Logf("delete policy: %v", err) // the cluster may be gone already
		}
	})
	e.waitForArchiving(p, metav1.ConditionTrue, "Archiving")
	devtest.Eventually(e, timeout, func() error {
		for _, c := range e.status(p).Conditions {
			if c.Type == v1alpha1.ConditionAttached && (c.Status == metav1.ConditionTrue && c.Reason == "Attached" || c.Reason == "NotWanted") {
				return nil
			}
		}
		return fmt.Errorf("status: %+v", e.status(p))
	})
	return p
}

// status returns the status of a policy.
func (e *env) status(p *unstructured.Unstructured) v1alpha1.ArchivePolicyStatus {
	e.Helper()
	live := e.Read(p)
	if live == nil {
		e.Fatalf("%s is gone", p.GetName())
	}
	var policy v1alpha1.ClusterArchivePolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &policy); err != nil {
		e.Fatal(err)
	}
	return policy.Status
}

// waitForArchiving waits for the condition Archiving, and returns its message.
func (e *env) waitForArchiving(p *unstructured.Unstructured, status metav1.ConditionStatus, reason string) (message string) {
	e.Helper()
	devtest.Eventually(e, timeout, func() error {
		for _, c := range e.status(p).Conditions {
			if c.Type == v1alpha1.ConditionArchiving && c.Status == status && c.Reason == reason {
				message = c.Message
				return nil
			}
		}
		return fmt.Errorf("want %s with reason %s: %+v", status, reason, e.status(p))
	})
	return message
}

// createMany creates ConfigMaps with a label for the policies and different data.
func (e *env) createMany(tier string, n int, owners ...*unstructured.Unstructured) []*unstructured.Unstructured {
	e.Helper()
	const writers = 4
	all := make([]*unstructured.Unstructured, n)
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for at := i; at < n && !e.Failed(); at += writers {
				all[at] = e.labelled(fmt.Sprintf("%s-%04d", tier, at), tier, owners...)
			}
		})
	}
	writing.Wait()
	if e.Failed() {
		e.FailNow()
	}
	return all
}

// labelled creates a ConfigMap with a label for the policies.
func (e *env) labelled(name, tier string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	return e.Create(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %[1]s, labels: {tier: %[2]s}}, data: {content: of %[1]s}}", name, tier), owners...)
}

// configMaps are the resources and labels of a policy for what createMany creates.
func configMaps(tier string) string {
	return `resources: [{apiGroups: [""], resources: [configmaps]}], objectSelector: {matchLabels: {tier: ` + tier + `}}`
}

// remaining returns the UIDs of the ConfigMaps in the namespace.
func (e *env) remaining() map[types.UID]bool {
	e.Helper()
	all := map[types.UID]bool{}
	for _, o := range e.List("v1", "ConfigMap") {
		all[o.GetUID()] = true
	}
	return all
}

// archived reads all entries of the namespace from an archive that no process has open, by the
// UIDs of their objects. Others are of earlier tests, whose policies had other recipients.
func (e *env) archived(location string, identities ...age.Identity) map[types.UID]*unstructured.Unstructured {
	e.Helper()
	at, err := open.Parse(location)
	if err != nil {
		e.Fatal(err)
	}
	r, err := open.Reader(e.Context(), at)
	if err != nil {
		e.Fatal(err)
	}
	defer r.Close()
	all := map[types.UID]*unstructured.Unstructured{}
	err = r.Headers(e.Context(), archive.Query{Namespace: &e.Namespace}, func(h archive.Header) bool {
		body, err := r.Body(e.Context(), h)
		if err != nil {
			e.Errorf("%s: %v", h.Object, err)
			return true
		}
		o, err := archive.Open(h, body, identities...)
		if err != nil {
			e.Errorf("%s: %v", h.Object, err)
			return true
		}
		if _, newer := all[h.Object.UID]; !newer {
			all[h.Object.UID] = o
		}
		return true
	})
	if err != nil {
		e.Error(err)
	}
	return all
}

// checkArchived fails the test unless each object that is gone is in the archive, with all its
// fields. It returns the number of those that still exist.
func (e *env) checkArchived(location string, all []*unstructured.Unstructured) (left int) {
	e.Helper()
	remaining := e.remaining() // before the archive is read, which only grows
	entries := e.archived(location)
	for _, o := range all {
		switch entry := entries[o.GetUID()]; {
		case remaining[o.GetUID()]:
			left++
		case entry == nil:
			e.Errorf("%s is gone, and is not in the archive", o.GetName())
		default:
			if diff := objects.Diff(o, entry, nil); diff != "" {
				e.Errorf("%s (-deleted +archived):\n%s", o.GetName(), diff)
			}
		}
	}
	return left
}

// waitUntilEmpty waits until the namespace has no ConfigMap but the default one.
func (e *env) waitUntilEmpty() {
	e.Helper()
	devtest.Eventually(e, timeout, func() error {
		if left := len(e.remaining()); left > 1 {
			return fmt.Errorf("%d ConfigMaps are left", left)
		}
		return nil
	})
}

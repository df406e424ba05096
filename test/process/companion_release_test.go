package process

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// admissions counts Gleaner's admission objects, by resource.
func (b *beside) admissions() map[string]int {
	b.Helper()
	counts := map[string]int{}
	for _, resource := range []string{
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
	} {
		list, err := dynamic.NewForConfigOrDie(b.cluster.RESTConfig()).
			Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}).
			List(b.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=gleaner"})
		if err != nil {
			b.Fatal(err)
		}
		if n := len(list.Items); n != 0 {
			counts[resource] = n
		}
	}
	return counts
}

func (b *beside) awaitAdmissions(n int) {
	b.Helper()
	devtest.Eventually(b, patience, func() error {
		if got := b.admissions(); len(got) != n {
			return fmt.Errorf("admission objects: %v", got)
		}
		return nil
	})
}

// overrides has a policy decide what becomes of the dependents of Secrets.
func (b *beside) overrides() (remove func()) {
	b.Helper()
	policies := dynamic.NewForConfigOrDie(b.cluster.RESTConfig()).
		Resource(schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "clustergcpolicies"})
	if _, err := policies.Create(b.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gleaner.dev/v1alpha1", "kind": "ClusterGCPolicy", "metadata": map[string]any{"name": "overrides"},
		"spec": map[string]any{
			"resources":         []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}}},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": b.ns}},
			"fixed":             map[string]any{"propagate": map[string]any{"decision": "Foreground"}},
			"mode":              "Enforce", "explicit": "Override",
		},
	}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := policies.Delete(b.Context(), "overrides", metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// held waits until a Secret has finalizers, or has none.
func (b *beside) held(name string, wanted bool) {
	b.Helper()
	devtest.Eventually(b, patience, func() error {
		o, err := b.kube.CoreV1().Secrets(b.ns).Get(b.Context(), name, metav1.GetOptions{})
		if err == nil && (len(o.Finalizers) != 0) != wanted {
			err = fmt.Errorf("%s has %v", name, o.Finalizers)
		}
		return err
	})
}

func (b *beside) secret(name string) {
	b.Helper()
	if _, err := b.kube.CoreV1().Secrets(b.ns).Create(b.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func TestCompanion_IsRemovedInAnyOrder(t *testing.T) {
	b := newBeside(t)
	b.gleaner.stop()
	b.run("--leader-elect=true") // by its lease it is known to run
	keeps, remove := b.keeps("Hold"), b.overrides()
	b.awaitAdmissions(5)
	b.secret("held")
	b.held("held", true)

	out, err := releaseOn(t, b.cluster, "", "--all", "--yes")
	for _, part := range []string{"admission objects stay, since an operator is running (lease kube-system/gleaner.dev)", "have a hold again: stop the operator"} {
		if err == nil || !strings.Contains(out, part) {
			t.Fatalf("while the operator runs: %v\n%s", err, out)
		}
	}
	if got := b.admissions(); len(got) != 5 {
		t.Fatalf("left: %v", got)
	}
	b.held("held", true)

	// The wrong order: the operator is gone, and nobody has deleted a policy. What
	// no policy governs is collected, and can be created and deleted.
	b.gleaner.kill()
	elsewhere := &beside{world: newWorld(t, b.cluster), cluster: b.cluster}
	elsewhere.goes(elsewhere.orphaned("unrelated"))
	orphan := metav1.DeletePropagationOrphan
	elsewhere.secret("unrelated")
	if err := b.kube.CoreV1().Secrets(elsewhere.ns).Delete(t.Context(), "unrelated", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Error(err)
	}
	devtest.Eventually(t, patience, func() error { // its lease takes a while to run out
		if out, err = releaseOn(t, b.cluster, "", "--all", "--yes"); err == nil && !strings.Contains(out, "Removed ") {
			err = errors.New("they stay")
		}
		return err
	})
	if got := b.admissions(); len(got) != 0 {
		t.Errorf("left: %v\n%s", got, out)
	}
	b.held("held", false)
	b.secret("new")
	b.held("new", false)

	// The right order: policies first. They are still there for the next operator.
	b.run()
	b.awaitAdmissions(5)
	b.held("held", true)
	remove()
	if err := keeps.Delete(t.Context(), "keeps", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.awaitAdmissions(0)
	b.held("held", false)
	b.gleaner.stop()
	if out, err = releaseOn(t, b.cluster, "", "--all"); err != nil || !strings.Contains(out, "Nothing there has a hold.") {
		t.Errorf("in the end: %v\n%s", err, out)
	}
	if err := b.kube.CoreV1().Secrets(b.ns).Delete(t.Context(), "held", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

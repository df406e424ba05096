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

// countAdmissionObjects counts Gleaner's admission objects, by resource.
func (b *companionEnv) countAdmissionObjects() map[string]int {
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

func (b *companionEnv) waitForAdmissionObjects(n int) {
	b.Helper()
	devtest.Eventually(b, timeout, func() error {
		if got := b.countAdmissionObjects(); len(got) != n {
			return fmt.Errorf("admission objects: %v", got)
		}
		return nil
	})
}

// applyOverridePolicy applies a policy that decides about the dependents of Secrets.
func (b *companionEnv) applyOverridePolicy() (remove func()) {
	b.Helper()
	policies := dynamic.NewForConfigOrDie(b.cluster.RESTConfig()).
		Resource(schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "clustergcpolicies"})
	if _, err := policies.Create(b.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gleaner.dev/v1alpha1", "kind": "ClusterGCPolicy", "metadata": map[string]any{"name": "overrides"},
		"spec": map[string]any{
			"resources":         []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}}},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": b.ns}},
			"fixed":             map[string]any{"propagate": map[string]any{"decision": "Foreground"}},
			"mode":              "Enforce", "explicitPropagation": "Override",
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

// waitForHold waits until a Secret has a hold, or has none.
func (b *companionEnv) waitForHold(name string, wanted bool) {
	b.Helper()
	devtest.Eventually(b, timeout, func() error {
		o, err := b.kube.CoreV1().Secrets(b.ns).Get(b.Context(), name, metav1.GetOptions{})
		if err == nil && (len(o.Finalizers) != 0) != wanted {
			err = fmt.Errorf("%s has finalizers %v", name, o.Finalizers)
		}
		return err
	})
}

func (b *companionEnv) createSecret(name string) {
	b.Helper()
	if _, err := b.kube.CoreV1().Secrets(b.ns).Create(b.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func TestCompanion_CanBeRemovedInAnyOrder(t *testing.T) {
	b := newCompanionEnv(t)
	b.operator.stop()
	b.startOperator("--leader-elect=true") // its lease shows that it is running
	keeps, remove := b.applyKeepPolicy("Hold"), b.applyOverridePolicy()
	b.waitForAdmissionObjects(5)
	b.createSecret("held")
	b.waitForHold("held", true)

	out, err := releaseOn(t, b.cluster, "", "--all", "--yes")
	for _, part := range []string{"Keeping Gleaner's admission objects, because an operator is running (lease kube-system/gleaner.dev)", "have a hold again: stop the operator"} {
		if err == nil || !strings.Contains(out, part) {
			t.Fatalf("with the operator running: %v\n%s", err, out)
		}
	}
	if got := b.countAdmissionObjects(); len(got) != 5 {
		t.Fatalf("left: %v", got)
	}
	b.waitForHold("held", true)

	// The wrong order: the operator is removed before the policies. Objects
	// that no policy governs are collected, and can be created and deleted.
	b.operator.process.Kill()
	elsewhere := &companionEnv{env: newEnv(t, b.cluster), cluster: b.cluster}
	elsewhere.waitForDeletion(elsewhere.createOrphan("unrelated"))
	orphan := metav1.DeletePropagationOrphan
	elsewhere.createSecret("unrelated")
	if err := b.kube.CoreV1().Secrets(elsewhere.ns).Delete(t.Context(), "unrelated", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Error(err)
	}
	devtest.Eventually(t, timeout, func() error { // its lease has to expire
		if out, err = releaseOn(t, b.cluster, "", "--all", "--yes"); err == nil && !strings.Contains(out, "Removed ") {
			err = errors.New("admission objects remain")
		}
		return err
	})
	if got := b.countAdmissionObjects(); len(got) != 0 {
		t.Errorf("left: %v\n%s", got, out)
	}
	b.waitForHold("held", false)
	b.createSecret("new")
	b.waitForHold("new", false)

	// The right order: policies first. They still exist for the next operator.
	b.startOperator()
	b.waitForAdmissionObjects(5)
	b.waitForHold("held", true)
	remove()
	if err := keeps.Delete(t.Context(), "keeps", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.waitForAdmissionObjects(0)
	b.waitForHold("held", false)
	b.operator.stop()
	if out, err = releaseOn(t, b.cluster, "", "--all"); err != nil || !strings.Contains(out, "No object has a hold.") {
		t.Errorf("at the end: %v\n%s", err, out)
	}
	if err := b.kube.CoreV1().Secrets(b.ns).Delete(t.Context(), "held", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

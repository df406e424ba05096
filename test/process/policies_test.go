package process

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// The operator is killed repeatedly while it carries out a policy's
// decisions: with a budget of ten calls a second and
// three writes for each owner, this is between any two of them.
func TestSIGKILL_BetweenTheWritesOfADecision(t *testing.T) {
	cluster := newCluster(t)
	config := cluster.RESTConfig()
	createCRDs(t, config)
	client, ns := kubernetes.NewForConfigOrDie(config), devtest.Namespace(t, config)
	policies := dynamic.NewForConfigOrDie(config).
		Resource(schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "gcpolicies"}).Namespace(ns)
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gleaner.dev/v1alpha1", "kind": "GCPolicy", "metadata": map[string]any{"name": "orphans"},
		"spec": map[string]any{
			"resources": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}}},
			"fixed":     map[string]any{"propagate": map[string]any{"decision": "Orphan"}},
			"mode":      "Enforce",
		},
	}}
	devtest.Eventually(t, timeout, func() error { // the type is served a moment after its definition
		_, err := policies.Create(t.Context(), policy, metav1.CreateOptions{})
		return err
	})
	const owners = 8
	secrets, maps := client.CoreV1().Secrets(ns), client.CoreV1().ConfigMaps(ns)
	for i := range owners {
		owner, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("owner-%d", i)}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ref := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID}
		dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("dependent-%d", i), OwnerReferences: []metav1.OwnerReference{ref}}}
		if _, err := maps.Create(t.Context(), dependent, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	state := func() string { // of all owners: shows how far the decisions have been carried out
		list, err := secrets.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, o := range list.Items {
			words = append(words, fmt.Sprintf("%s %v %t", o.Name, o.Finalizers, o.Annotations["gleaner.dev/memo"] != ""))
		}
		slices.Sort(words)
		return strings.Join(words, ", ")
	}
	first := startOperator(t, cluster)
	devtest.Eventually(t, timeout, func() error {
		if now := state(); strings.Count(now, hold) != owners {
			return errors.New(now)
		}
		return nil
	})
	first.process.Kill()
	if err := secrets.DeleteCollection(t.Context(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	kills := 0
	for before := state(); before != ""; before = state() {
		g := startOperator(t, cluster, "--api-qps=10")
		devtest.Eventually(t, timeout, func() error {
			if state() == before {
				return errors.New("no change")
			}
			return nil
		})
		g.process.Kill()
		kills++
	}
	t.Logf("killed %d times", kills)
	for i := range owners {
		o, err := maps.Get(t.Context(), fmt.Sprintf("dependent-%d", i), metav1.GetOptions{})
		if err != nil {
			t.Errorf("a kept dependent is gone: %v", err)
			continue
		}
		if len(o.OwnerReferences) != 0 {
			t.Errorf("%s still has its owner reference", o.Name)
		}
	}
}

// createCRDs creates the CustomResourceDefinitions.
func createCRDs(t *testing.T, config *rest.Config) {
	t.Helper()
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	types := apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	for _, d := range definitions {
		if _, err := types.Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

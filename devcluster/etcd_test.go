package devcluster_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// More objects than one transaction of etcd may delete, and one that a finalizer would keep.
func TestEraseNamespace_RemovesItsObjects_AndNoOthers(t *testing.T) {
	cluster := devtest.Shared(t)
	client := clientFor(t, cluster.RESTConfig())
	erased, other := devtest.Namespace(t, cluster.RESTConfig()), devtest.Namespace(t, cluster.RESTConfig())
	for i := range 150 {
		kept := configMap(fmt.Sprint("c", i))
		kept.Finalizers = []string{"example.com/keep"}
		if _, err := client.CoreV1().ConfigMaps(erased).Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// Named like the namespace, and in another one.
	if _, err := client.CoreV1().ConfigMaps(other).Create(t.Context(), configMap(erased), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := cluster.EraseNamespace(t.Context(), erased); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, testTimeout, func() error {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), erased, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get namespace: %w", err)
		}
		left, err := client.CoreV1().ConfigMaps(erased).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(left.Items) != 0 {
			err = fmt.Errorf("%d ConfigMaps are left", len(left.Items))
		}
		return err
	})
	if _, err := client.CoreV1().ConfigMaps(other).Get(t.Context(), erased, metav1.GetOptions{}); err != nil {
		t.Error("another namespace:", err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), other, metav1.GetOptions{}); err != nil {
		t.Error("another namespace:", err)
	}
}

func TestEraseNamespace_WithoutANamespace_IsAnError(t *testing.T) {
	for _, name := range []string{"", "a/b"} {
		if err := devtest.Shared(t).EraseNamespace(t.Context(), name); err == nil || !strings.Contains(err.Error(), "give the name of a namespace") {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

package process

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// env is one test's namespace and a client for it.
type env struct {
	*testing.T
	kube kubernetes.Interface
	ns   string
}

func newEnv(t *testing.T, cluster *devcluster.Cluster) *env {
	t.Helper()
	config := cluster.RESTConfig()
	return &env{T: t, kube: kubernetes.NewForConfigOrDie(config), ns: devtest.Namespace(t, config)}
}

// objectMeta returns the metadata of an object with owners.
func (w *env) objectMeta(name string, owners ...*corev1.ConfigMap) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: name, Namespace: w.ns}
	for _, o := range owners {
		meta.OwnerReferences = append(meta.OwnerReferences,
			metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID})
	}
	return meta
}

// create creates a ConfigMap with owners.
func (w *env) create(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	w.Helper()
	made, err := w.kube.CoreV1().ConfigMaps(w.ns).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: w.objectMeta(name, owners...)}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// createMany creates ConfigMaps with the same owners.
func (w *env) createMany(prefix string, n int, owners ...*corev1.ConfigMap) []*corev1.ConfigMap {
	w.Helper()
	const writers = 8
	made := make([]*corev1.ConfigMap, n)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for at := i; at < n; at += writers {
				object, err := w.kube.CoreV1().ConfigMaps(w.ns).Create(w.Context(),
					&corev1.ConfigMap{ObjectMeta: w.objectMeta(prefix+strconv.Itoa(at), owners...)}, metav1.CreateOptions{})
				if err != nil {
					w.Error(err)
					return
				}
				made[at] = object
			}
		})
	}
	all.Wait()
	if w.Failed() {
		w.FailNow()
	}
	return made
}

// createSecret creates a Secret with owners.
func (w *env) createSecret(name string, owners ...*corev1.ConfigMap) *corev1.Secret {
	w.Helper()
	made, err := w.kube.CoreV1().Secrets(w.ns).Create(w.Context(), &corev1.Secret{ObjectMeta: w.objectMeta(name, owners...)}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// delete deletes an object in the background.
func (w *env) delete(o *corev1.ConfigMap) {
	w.Helper()
	background := metav1.DeletePropagationBackground
	if err := w.kube.CoreV1().ConfigMaps(o.Namespace).Delete(w.Context(), o.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		w.Fatal(err)
	}
}

// exists reports whether an object exists.
func (w *env) exists(o *corev1.ConfigMap) bool {
	w.Helper()
	live, err := w.kube.CoreV1().ConfigMaps(o.Namespace).Get(w.Context(), o.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
	return err == nil && live.UID == o.UID
}

// waitForDeletion waits until an object does not exist any more.
func (w *env) waitForDeletion(o *corev1.ConfigMap) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		if w.exists(o) {
			return fmt.Errorf("%s still exists", o.Name)
		}
		return nil
	})
}

// listNames returns the names of the namespace's ConfigMaps, except the default
// one.
func (w *env) listNames() map[string]bool {
	w.Helper()
	list, err := w.kube.CoreV1().ConfigMaps(w.ns).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	names := map[string]bool{}
	for _, o := range list.Items {
		if o.Name != "kube-root-ca.crt" {
			names[o.Name] = true
		}
	}
	return names
}

// createOrphan creates an object whose owner is deleted.
func (w *env) createOrphan(name string) *corev1.ConfigMap {
	w.Helper()
	owner := w.create(name + "-owner")
	dependent := w.create(name, owner)
	w.delete(owner)
	return dependent
}

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

// world is a namespace of a test's own and a client for it.
type world struct {
	*testing.T
	kube kubernetes.Interface
	ns   string
}

func newWorld(t *testing.T, cluster *devcluster.Cluster) *world {
	t.Helper()
	config := cluster.RESTConfig()
	return &world{T: t, kube: kubernetes.NewForConfigOrDie(config), ns: devtest.Namespace(t, config)}
}

// meta names an object with owners.
func (w *world) meta(name string, owners ...*corev1.ConfigMap) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: name, Namespace: w.ns}
	for _, o := range owners {
		meta.OwnerReferences = append(meta.OwnerReferences,
			metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID})
	}
	return meta
}

// make creates a ConfigMap with owners.
func (w *world) make(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	w.Helper()
	made, err := w.kube.CoreV1().ConfigMaps(w.ns).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: w.meta(name, owners...)}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// makeMany creates ConfigMaps with the same owners.
func (w *world) makeMany(prefix string, n int, owners ...*corev1.ConfigMap) []*corev1.ConfigMap {
	w.Helper()
	const writers = 8
	made := make([]*corev1.ConfigMap, n)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for at := i; at < n; at += writers {
				object, err := w.kube.CoreV1().ConfigMaps(w.ns).Create(w.Context(),
					&corev1.ConfigMap{ObjectMeta: w.meta(prefix+strconv.Itoa(at), owners...)}, metav1.CreateOptions{})
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

// makeSecret creates a Secret with owners.
func (w *world) makeSecret(name string, owners ...*corev1.ConfigMap) *corev1.Secret {
	w.Helper()
	made, err := w.kube.CoreV1().Secrets(w.ns).Create(w.Context(), &corev1.Secret{ObjectMeta: w.meta(name, owners...)}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// delete deletes an object in the background.
func (w *world) delete(o *corev1.ConfigMap) {
	w.Helper()
	background := metav1.DeletePropagationBackground
	if err := w.kube.CoreV1().ConfigMaps(o.Namespace).Delete(w.Context(), o.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		w.Fatal(err)
	}
}

// exists reports whether an object is there.
func (w *world) exists(o *corev1.ConfigMap) bool {
	w.Helper()
	live, err := w.kube.CoreV1().ConfigMaps(o.Namespace).Get(w.Context(), o.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
	return err == nil && live.UID == o.UID
}

// goes waits until an object does not exist any more.
func (w *world) goes(o *corev1.ConfigMap) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		if w.exists(o) {
			return fmt.Errorf("%s is still there", o.Name)
		}
		return nil
	})
}

// left returns the names of the namespace's ConfigMaps, but for the one that
// is made for every namespace.
func (w *world) left() map[string]bool {
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

// orphaned makes an object whose owner is gone.
func (w *world) orphaned(name string) *corev1.ConfigMap {
	w.Helper()
	owner := w.make(name + "-owner")
	dependent := w.make(name, owner)
	w.delete(owner)
	return dependent
}

package deploy

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// world is a namespace of a test's own.
type world struct {
	*testing.T
	kube kubernetes.Interface
	ns   string
}

func newWorld(t *testing.T, admin *rest.Config) *world {
	t.Helper()
	return &world{T: t, kube: kubernetes.NewForConfigOrDie(admin), ns: devtest.Namespace(t, admin)}
}

// bound makes a service account that a ClusterRole is bound to, if there is one.
func (w *world) bound(name, role string) string {
	w.Helper()
	meta := metav1.ObjectMeta{Name: name}
	if _, err := w.kube.CoreV1().ServiceAccounts(w.ns).Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if role == "" {
		return name
	}
	w.bind(role, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: name})
	return name
}

// bind binds a ClusterRole everywhere, until the test ends.
func (w *world) bind(role string, subject rbacv1.Subject) {
	w.Helper()
	bindings := w.kube.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: w.ns + "-"}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(w.Context()), binding.Name, metav1.DeleteOptions{}); err != nil {
			w.Error(err)
		}
	})
}

// collects waits until dependents of owners that are deleted, in each of the
// three ways, are collected, kept, and reported on, as it should be.
func (w *world) collects(prefix string) {
	w.Helper()
	for _, policy := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	} {
		owner := w.make(prefix+"-owner-of-"+label(policy), w.ns)
		dependent := w.make(prefix+"-"+label(policy), w.ns, owner)
		err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(w.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
		if err != nil {
			w.Fatal(err)
		}
		w.eventually(owner, func(live *corev1.ConfigMap) bool { return live == nil })
		if policy == metav1.DeletePropagationOrphan {
			w.eventually(dependent, func(live *corev1.ConfigMap) bool { return live != nil && len(live.OwnerReferences) == 0 })
			continue
		}
		w.eventually(dependent, func(live *corev1.ConfigMap) bool { return live == nil })
	}

	owner := w.make(prefix+"-far-owner", "default")
	w.Cleanup(func() {
		err := w.kube.CoreV1().ConfigMaps("default").Delete(context.WithoutCancel(w.Context()), owner.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.Error(err)
		}
	})
	w.told(w.make(prefix+"-far", w.ns, owner))
}

func label(p metav1.DeletionPropagation) string {
	return map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationBackground: "background",
		metav1.DeletePropagationForeground: "foreground",
		metav1.DeletePropagationOrphan:     "orphan",
	}[p]
}

// make creates a ConfigMap with owners that wait for it.
func (w *world) make(name, namespace string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	w.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, o := range owners {
		blocks := true
		object.OwnerReferences = append(object.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID, BlockOwnerDeletion: &blocks,
		})
	}
	made, err := w.kube.CoreV1().ConfigMaps(namespace).Create(w.Context(), object, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// eventually waits until an object, nil if there is none, is as it should be.
func (w *world) eventually(o *corev1.ConfigMap, is func(*corev1.ConfigMap) bool) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		live, err := w.kube.CoreV1().ConfigMaps(o.Namespace).Get(w.Context(), o.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			live = nil
		case err != nil:
			return err
		}
		if !is(live) {
			return fmt.Errorf("%s is %+v", o.Name, live)
		}
		return nil
	})
}

// told waits for the event about an owner in another namespace.
func (w *world) told(o *corev1.ConfigMap) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		events, err := w.kube.CoreV1().Events(w.ns).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.UID == o.UID && e.Reason == "OwnerRefInvalidNamespace" {
				return nil
			}
		}
		return fmt.Errorf("there is no event about %s", o.Name)
	})
}

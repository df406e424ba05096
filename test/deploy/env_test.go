package deploy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// env is one test's namespace.
type env struct {
	*testing.T
	kube kubernetes.Interface
	ns   string
}

func newEnv(t *testing.T, admin *rest.Config) *env {
	t.Helper()
	return &env{T: t, kube: kubernetes.NewForConfigOrDie(admin), ns: devtest.Namespace(t, admin)}
}

// hasMutatingPolicies reports whether the API server has MutatingAdmissionPolicies, as Kubernetes 1.36 and later. In others, the webhook of a
// companion adds holds when objects are created.
func hasMutatingPolicies(w *env) bool {
	w.Helper()
	list, err := w.kube.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		w.Fatal(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == "MutatingAdmissionPolicy" })
}

// createBoundAccount creates a service account and binds a ClusterRole to it, if not "".
func (w *env) createBoundAccount(name, role string) string {
	w.Helper()
	meta := metav1.ObjectMeta{Name: name}
	if _, err := w.kube.CoreV1().ServiceAccounts(w.ns).Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if role == "" {
		return name
	}
	w.bindClusterRole(role, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: name})
	return name
}

// bindClusterRole binds a ClusterRole in all namespaces until the test ends.
func (w *env) bindClusterRole(role string, subject rbacv1.Subject) {
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

// expectCollection deletes owners with each propagation policy, and waits until their dependents
// are collected, kept and reported as expected.
func (w *env) expectCollection(prefix string) {
	w.Helper()
	for _, policy := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	} {
		owner := w.create(prefix+"-owner-of-"+label(policy), w.ns)
		dependent := w.create(prefix+"-"+label(policy), w.ns, owner)
		err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(w.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
		if err != nil {
			w.Fatal(err)
		}
		w.waitForObject(owner, func(live *corev1.ConfigMap) bool { return live == nil })
		if policy == metav1.DeletePropagationOrphan {
			w.waitForObject(dependent, func(live *corev1.ConfigMap) bool { return live != nil && len(live.OwnerReferences) == 0 })
			continue
		}
		w.waitForObject(dependent, func(live *corev1.ConfigMap) bool { return live == nil })
	}

	owner := w.create(prefix+"-far-owner", "default")
	w.Cleanup(func() {
		err := w.kube.CoreV1().ConfigMaps("default").Delete(context.WithoutCancel(w.Context()), owner.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.Error(err)
		}
	})
	w.waitForEvent(w.create(prefix+"-far", w.ns, owner))
}

func label(p metav1.DeletionPropagation) string {
	return map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationBackground: "background",
		metav1.DeletePropagationForeground: "foreground",
		metav1.DeletePropagationOrphan:     "orphan",
	}[p]
}

// create creates a ConfigMap with owners that it blocks.
func (w *env) create(name, namespace string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
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

// waitForObject waits until an object, nil if it does not exist, satisfies a condition.
func (w *env) waitForObject(o *corev1.ConfigMap, is func(*corev1.ConfigMap) bool) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
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

// waitForEvent waits for the event about an owner in another namespace.
func (w *env) waitForEvent(o *corev1.ConfigMap) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		events, err := w.kube.CoreV1().Events(w.ns).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.UID == o.UID && e.Reason == "OwnerRefInvalidNamespace" {
				return nil
			}
		}
		return fmt.Errorf("no event about %s", o.Name)
	})
}

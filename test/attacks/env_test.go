package attacks

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/attacks/payload"
)

// env is a control plane with an operator, a tenant that attacks it from a namespace,
// and a namespace of a victim.
type env struct {
	*testing.T
	mode     mode
	cluster  *devcluster.Cluster
	operator *operator
	admin    *client
	tenant   *client // may edit the namespace attacker, and write policies there
	attacker string  // namespace
	victim   string  // namespace
}

// client is a user's client.
type client struct {
	kube    kubernetes.Interface
	objects dynamic.Interface
}

func newClient(t *testing.T, config *rest.Config) *client {
	t.Helper()
	return &client{kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config)}
}

// resources are the resources that tests use, by kind.
var resources = map[string]string{
	"ConfigMap": "configmaps", "GCPolicy": "gcpolicies", "PolicyModule": "policymodules", "Finalizer": "finalizers",
	"ClusterGCPolicy": "clustergcpolicies", "ClusterPolicyModule": "clusterpolicymodules",
}

func (c *client) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	gvr := o.GroupVersionKind().GroupVersion().WithResource(resources[o.GetKind()])
	if o.GetNamespace() == "" {
		return c.objects.Resource(gvr)
	}
	return c.objects.Resource(gvr).Namespace(o.GetNamespace())
}

func (c *client) create(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.resource(o).Create(ctx, o, metav1.CreateOptions{})
}

// newEnv starts an operator on the control plane of a mode.
func newEnv(t *testing.T, m mode) *env {
	t.Helper()
	cluster := installed(t, m)
	config := cluster.RESTConfig()
	w := &env{T: t, mode: m, cluster: cluster, admin: newClient(t, config)}
	w.attacker, w.victim = w.namespace("attacker"), w.namespace("victim")
	w.tenant = w.createEditor(w.attacker)
	t.Cleanup(func() { w.removeAttack() }) // after the operator has ended
	w.createVictimPolicies()
	w.operator = startOperator(t, cluster, m)
	return w
}

func (w *env) namespace(prefix string) string {
	w.Helper()
	namespace, err := w.admin.kube.CoreV1().Namespaces().Create(w.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = w.admin.kube.CoreV1().Namespaces().Delete(context.WithoutCancel(w.Context()), namespace.Name, metav1.DeleteOptions{})
	})
	return namespace.Name
}

// createEditor returns a tenant of a namespace with the role edit and, unless edit is aggregated
// with it, the role of policy authors.
func (w *env) createEditor(namespace string) *client {
	w.Helper()
	user := "tenant-of-" + namespace
	for _, role := range []string{"edit", "gleaner-editor", "gleaner-viewer"} {
		_, err := w.admin.kube.RbacV1().RoleBindings(namespace).Create(w.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{})
		if err != nil {
			w.Fatal(err)
		}
	}
	config, err := w.cluster.ConfigFor(user)
	if err != nil {
		w.Fatal(err)
	}
	return newClient(w.T, config)
}

// removeAttack deletes the tenant's objects, so that the operator of the next
// test does not load them.
func (w *env) removeAttack() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), timeout)
	defer cancel()
	for _, namespace := range []string{w.attacker, w.victim} {
		for _, resource := range []string{"finalizers", "gcpolicies", "policymodules"} {
			gvr := schema.GroupVersionResource{Group: payload.Group, Version: payload.Version, Resource: resource}
			if err := w.admin.objects.Resource(gvr).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				w.Errorf("remove %s of %s: %v", resource, namespace, err)
			}
		}
	}
}

const govern = "attacks.gleaner.dev/governed"

// createVictimPolicies creates policies of the victim: a Rego module, and a fixed verdict
// for which a companion's webhook is called for each collected object.
func (w *env) createVictimPolicies() {
	w.Helper()
	rules := []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}}
	selector := map[string]any{"matchLabels": map[string]any{govern: "yes"}}
	w.create(w.admin, payload.Object("PolicyModule", w.victim, "abstaining", map[string]any{"rego": map[string]any{"inline": payload.Abstaining()}}))
	w.create(w.admin, payload.Object("GCPolicy", w.victim, "module", map[string]any{
		"resources": rules, "objectSelector": selector, "mode": "Monitor", "priority": int64(1),
		"module": map[string]any{"name": "abstaining"}, "needs": "Reference",
	}))
	w.create(w.admin, payload.Object("GCPolicy", w.victim, "fixed", map[string]any{
		"resources": rules, "objectSelector": selector, "mode": "Enforce",
		"fixed": map[string]any{"collect": map[string]any{"decision": "Delete"}},
	}))
}

// create creates an object; its type may be served a moment after its definition.
func (w *env) create(c *client, o *unstructured.Unstructured) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		_, err := c.create(w.Context(), o)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			w.Fatal(err)
		}
		return err
	})
}

// submitPayload creates a payload's objects as the tenant. It reports whether the API server
// accepted the module: a refused one does no harm.
func (w *env) submitPayload(p payload.Payload) bool {
	w.Helper()
	p = w.fitLimits(p)
	w.Logf("%s with limits %+v", p.Name, p.Limits)
	objects, err := p.Module(w.attacker)
	if err != nil {
		w.Fatal(err)
	}
	for _, o := range objects {
		_, err := w.tenant.create(w.Context(), o)
		if apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
			w.Logf("%s is refused: %v", p.Name, err)
			return false
		}
		if err != nil {
			w.Fatal(err)
		}
	}
	for _, o := range p.GCPolicies(w.attacker) {
		w.create(w.tenant, o)
	}
	if p.Orphans > 0 {
		w.waitForModule(p)
		w.createOrphans(p)
	}
	return true
}

// waitForModule waits for the operator to load a module; otherwise its policies would not
// use it. A module that is not loaded in time never will be.
func (w *env) waitForModule(p payload.Payload) {
	w.Helper()
	policy := p.GCPolicies(w.attacker)[0]
	for began := time.Now(); time.Since(began) < maxEnforceDelay; {
		live, err := w.tenant.resource(policy).Get(w.Context(), policy.GetName(), metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if status, message := condition(live, "ModuleReady"); status != "" && status != "Unknown" {
			w.Logf("ready condition of the module is %s: %s", status, message)
			return
		}
		w.sleep(50 * time.Millisecond)
	}
}

// fitLimits determines the highest limits that the API server accepts.
func (w *env) fitLimits(p payload.Payload) payload.Payload {
	w.Helper()
	p.Limits = p.Limits.Fit(func(l payload.Limits) (accepted bool) {
		probe := payload.Payload{Name: p.Name, Rego: payload.Abstaining, Limits: l}
		objects, err := probe.Module(w.attacker)
		if err != nil {
			w.Fatal(err)
		}
		devtest.Eventually(w, timeout, func() error {
			_, err := w.tenant.resource(objects[0]).Create(w.Context(), objects[0], metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if accepted = err == nil; apierrors.IsInvalid(err) {
				err = nil
			}
			return err
		})
		return accepted
	})
	return p
}

// createOrphans creates objects that a payload's policies are evaluated for.
func (w *env) createOrphans(p payload.Payload) {
	w.Helper()
	owner := w.createConfigMap(w.tenant, w.attacker, p.Name+"-owner", nil)
	const writers = 8
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for at := i; at < p.Orphans; at += writers {
				meta := metav1.ObjectMeta{Name: p.Name + "-" + strconv.Itoa(at), Labels: map[string]string{payload.Label: p.Name}}
				meta.OwnerReferences = ownerRefs(owner)
				if _, err := w.tenant.kube.CoreV1().ConfigMaps(w.attacker).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
					w.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	w.delete(w.tenant, owner)
}

func ownerRefs(owners ...*corev1.ConfigMap) []metav1.OwnerReference {
	var list []metav1.OwnerReference
	for _, o := range owners {
		list = append(list, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID})
	}
	return list
}

// createConfigMap creates a ConfigMap with labels and owners. If the name ends with -, a suffix
// is generated.
func (w *env) createConfigMap(c *client, namespace, name string, labels map[string]string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	w.Helper()
	meta := metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: ownerRefs(owners...)}
	if name[len(name)-1] == '-' {
		meta.Name, meta.GenerateName = "", name
	}
	created, err := c.kube.CoreV1().ConfigMaps(namespace).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return created
}

// delete deletes an object in the background.
func (w *env) delete(c *client, o *corev1.ConfigMap) {
	w.Helper()
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	if err := c.kube.CoreV1().ConfigMaps(o.Namespace).Delete(w.Context(), o.Name, options); err != nil {
		w.Fatal(err)
	}
}

// get reads an object; nil if it does not exist.
func (w *env) get(o *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	live, err := w.admin.kube.CoreV1().ConfigMaps(o.Namespace).Get(w.Context(), o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && live.UID != o.UID {
		return nil, nil
	}
	return live, err
}

// condition returns the status and message of a condition.
func condition(o *unstructured.Unstructured, name string) (status, message string) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == name {
			status, _ := c["status"].(string)
			message, _ := c["message"].(string)
			return status, message
		}
	}
	return "", ""
}

var digest = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// waitForEnforcing waits until a policy or finalizer is in force. If it must pin the
// digest of its module, the digest in its status is used.
func (w *env) waitForEnforcing(c *client, o *unstructured.Unstructured, within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		live, err := c.resource(o).Get(w.Context(), o.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, message := condition(live, "Enforcing")
		if status == "True" {
			return nil
		}
		_, ready := condition(live, "ModuleReady")
		if pin := digest.FindString(message + " " + ready); pin != "" {
			patch := fmt.Sprintf(`{"spec":{"module":{"digest":%q}}}`, pin)
			if _, err := c.resource(o).Patch(w.Context(), o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not in force after %s: %s; %s", o.GetName(), within, message, ready)
		}
		if !w.sleep(50 * time.Millisecond) {
			return w.Context().Err()
		}
	}
}

// sleep waits between two polls; it returns false if the test is over.
func (w *env) sleep(d time.Duration) bool {
	select {
	case <-w.Context().Done():
		return false
	case <-time.After(d):
		return true
	}
}

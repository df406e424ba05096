package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/test/pins"
)

const patience = 2 * time.Minute

// world is a test's own namespace, its clients and the collector.
type world struct {
	*testing.T
	collector *loop.Loop
	config    *rest.Config
	objects   dynamic.Interface
	ns        string
	custom    map[string]schema.GroupVersionResource // types of the test's own, by kind
}

// newWorld returns a world of the control plane and the collector that tests share. The test
// runs in parallel with others of them, since most of each is waiting.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return worldOn(t, devtest.Shared(t).RESTConfig(), collector(t))
}

func worldOn(t *testing.T, config *rest.Config, collector *loop.Loop) *world {
	t.Helper()
	return &world{T: t, collector: collector, config: config, objects: dynamic.NewForConfigOrDie(config), ns: devtest.Namespace(t, config)}
}

// resources are the types that tests write of, by kind.
var resources = map[string]schema.GroupVersionResource{
	"Event":                    {Version: "v1", Resource: "events"},
	"ConfigMap":                {Version: "v1", Resource: "configmaps"},
	"Secret":                   {Version: "v1", Resource: "secrets"},
	"Namespace":                {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":           {Version: "v1", Resource: "serviceaccounts"},
	"PersistentVolumeClaim":    {Version: "v1", Resource: "persistentvolumeclaims"},
	"Role":                     {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":              {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ClusterRole":              {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":       {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"GCPolicy":                 {Group: "gleaner.dev", Version: "v1alpha1", Resource: "gcpolicies"},
	"ClusterGCPolicy":          {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clustergcpolicies"},
	"PolicyModule":             {Group: "gleaner.dev", Version: "v1alpha1", Resource: "policymodules"},
	"ClusterPolicyModule":      {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterpolicymodules"},
	"Finalizer":                {Group: "gleaner.dev", Version: "v1alpha1", Resource: "finalizers"},
	"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"Thing":                    {Group: "new.example.com", Version: "v1", Resource: "things"},
	"ClusterFinalizer":         {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterfinalizers"},
}

var clusterScoped = map[string]bool{
	"CustomResourceDefinition": true,
	"Namespace":                true, "ClusterRole": true, "ClusterRoleBinding": true, "ClusterGCPolicy": true, "ClusterPolicyModule": true, "ClusterFinalizer": true,
}

func (w *world) client(o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource := w.resource(o.GetKind())
	if clusterScoped[o.GetKind()] {
		return w.objects.Resource(resource)
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(w.ns)
	}
	return w.objects.Resource(resource).Namespace(o.GetNamespace())
}

// apply creates what a text in YAML says, or changes it to that. NS in the text is
// the test's namespace; what has no namespace, and could, gets that. A policy or finalizer
// pins its module as that is now.
func (w *world) apply(text string) *unstructured.Unstructured {
	w.Helper()
	o, err := w.tryApply(text)
	if err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *world) tryApply(text string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "NS", w.ns)), &o.Object); err != nil {
		return nil, fmt.Errorf("%w in %s", err, text)
	}
	if gvr := w.resource(o.GetKind()); o.GetAPIVersion() == "" {
		o.SetAPIVersion(gvr.GroupVersion().String())
	}
	client := w.client(o)
	if err := pins.Pin(o, w.moduleNow); err != nil {
		return nil, err
	}
	applied, err := client.Apply(w.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err == nil {
		w.Cleanup(func() { w.remove(applied) })
	}
	return applied, err
}

// moduleNow is a module as it is now; nil if it is not there.
func (w *world) moduleNow(kind, namespace, name string) *unstructured.Unstructured {
	m := &unstructured.Unstructured{}
	m.SetGroupVersionKind(resources[kind].GroupVersion().WithKind(kind))
	m.SetNamespace(namespace)
	m, err := w.client(m).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return m
}

// remove takes an object away when its test is over, whatever holds it.
func (w *world) remove(o *unstructured.Unstructured) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), patience)
	defer cancel()
	client := w.client(o)
	_ = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	_, _ = client.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`), metav1.PatchOptions{})
}

// policy applies a policy or a module, and waits until what was said of it is
// said of this generation.
func (w *world) policy(text string) *unstructured.Unstructured {
	w.Helper()
	o := w.apply(text)
	w.eventually(func() error {
		live := w.get(o)
		observed, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
		if observed != live.GetGeneration() {
			return fmt.Errorf("%s %s: generation %d, observed %d", o.GetKind(), o.GetName(), live.GetGeneration(), observed)
		}
		o = live
		return nil
	})
	return o
}

// condition returns a condition of an object's status.
func (w *world) condition(o *unstructured.Unstructured, kind string) metav1.Condition {
	w.Helper()
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if c["type"] == kind {
			text := func(key string) string { s, _ := c[key].(string); return s }
			return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(text("status")), Reason: text("reason"), Message: text("message")}
		}
	}
	return metav1.Condition{}
}

// says waits until a condition is as wanted, and its message says so.
func (w *world) says(o *unstructured.Unstructured, kind string, status metav1.ConditionStatus, reason, message string) {
	w.Helper()
	w.eventually(func() error {
		c := w.condition(w.get(o), kind)
		if c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			return fmt.Errorf("%s %s: %s is %s, %s: %s", o.GetKind(), o.GetName(), kind, c.Status, c.Reason, c.Message)
		}
		return nil
	})
}

// make creates a ConfigMap with owners.
func (w *world) make(name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	return w.object("ConfigMap", name, nil, owners...)
}

// object creates an object of a kind, with labels and owners.
func (w *world) object(kind, name string, labels map[string]string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetKind(kind)
	o.SetAPIVersion(w.resource(kind).GroupVersion().String())
	o.SetName(name)
	o.SetLabels(labels)
	var refs []metav1.OwnerReference
	for _, owner := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()})
	}
	o.SetOwnerReferences(refs)
	made, err := w.client(o).Create(w.Context(), o, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.remove(made) })
	return made
}

// get returns an object as it is; one without a name if it is gone.
func (w *world) get(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	live, err := w.client(o).Get(w.Context(), o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && live.GetUID() != o.GetUID():
		return &unstructured.Unstructured{Object: map[string]any{}}
	case err != nil:
		w.Fatal(err)
	}
	return live
}

func (w *world) delete(o *unstructured.Unstructured) {
	w.Helper()
	w.deleteBy(o, metav1.DeletePropagationBackground)
}

func (w *world) deleteBy(o *unstructured.Unstructured, policy metav1.DeletionPropagation) {
	w.Helper()
	if err := w.client(o).Delete(w.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		w.Fatal(err)
	}
}

// patch changes an object by a merge patch.
func (w *world) patch(o *unstructured.Unstructured, text string) {
	w.Helper()
	if _, err := w.client(o).Patch(w.Context(), o.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) eventually(ask func() error) {
	w.Helper()
	devtest.Eventually(w, patience, ask)
}

// goes waits until objects are gone.
func (w *world) goes(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		w.eventually(func() error {
			if w.get(o).GetName() != "" {
				return fmt.Errorf("%s %s is still there; %s", o.GetKind(), o.GetName(), w.decisions(o))
			}
			return nil
		})
	}
}

// decided waits for a decision about an object.
func (w *world) decided(o *unstructured.Unstructured, reason string) record.Entry {
	w.Helper()
	var found record.Entry
	w.eventually(func() error {
		for _, e := range w.collector.Records(o.GetUID()) {
			if string(e.Reason) == reason && (e.Result == "" || e.Result == "Done") {
				found = e
				return nil
			}
		}
		return errors.New(w.decisions(o))
	})
	return found
}

// stays waits for a decision, and sees that the object is there after it.
func (w *world) stays(o *unstructured.Unstructured, reason string) record.Entry {
	w.Helper()
	e := w.decided(o, reason)
	if live := w.get(o); live.GetName() == "" || live.GetDeletionTimestamp() != nil {
		w.Fatalf("%s %s is gone, or going; %s", o.GetKind(), o.GetName(), w.decisions(o))
	}
	return e
}

func (w *world) decisions(o *unstructured.Unstructured) string {
	var texts []string
	for _, e := range w.collector.Records(o.GetUID()) {
		texts = append(texts, fmt.Sprintf("%s %s %s", e, e.Result, e.Error))
	}
	return fmt.Sprintf("decided: %q", texts)
}

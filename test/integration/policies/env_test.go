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
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/test/pins"
)

const timeout = 2 * time.Minute

// env is one test's namespace, its clients and the collector.
type env struct {
	*testing.T
	collector *run.Operator
	config    *rest.Config
	objects   dynamic.Interface
	ns        string
	custom    map[string]schema.GroupVersionResource // types that the test defined, by kind
}

// newEnv returns a world on the shared control plane with the shared collector. The tests
// run in parallel, since each mostly waits.
func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	return newEnvOn(t, devtest.Shared(t).RESTConfig(), sharedCollector(t))
}

func newEnvOn(t *testing.T, config *rest.Config, collector *run.Operator) *env {
	t.Helper()
	return &env{T: t, collector: collector, config: config, objects: dynamic.NewForConfigOrDie(config), ns: devtest.Namespace(t, config)}
}

// resources are the resources that tests use, by kind.
var resources = map[string]schema.GroupVersionResource{
	"Event":                    {Version: "v1", Resource: "events"},
	"ConfigMap":                {Version: "v1", Resource: "configmaps"},
	"Secret":                   {Version: "v1", Resource: "secrets"},
	"Namespace":                {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":           {Version: "v1", Resource: "serviceaccounts"},
	"Pod":                      {Version: "v1", Resource: "pods"},
	"ReplicaSet":               {Group: "apps", Version: "v1", Resource: "replicasets"},
	"Deployment":               {Group: "apps", Version: "v1", Resource: "deployments"},
	"Node":                     {Version: "v1", Resource: "nodes"},
	"ImageRemovalRequest":      {Group: "gleaner.dev", Version: "v1alpha1", Resource: "imageremovalrequests"},
	"DaemonSet":                {Group: "apps", Version: "v1", Resource: "daemonsets"},
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
	"HorizontalPodAutoscaler":  {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
	"ClusterFinalizer":         {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterfinalizers"},
	"ArchivePolicy":            {Group: "gleaner.dev", Version: "v1alpha1", Resource: "archivepolicies"},
	"Pause":                    {Group: "gleaner.dev", Version: "v1alpha1", Resource: "pauses"},
	"ClusterPause":             {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterpauses"},
	"DeletionBudget":           {Group: "gleaner.dev", Version: "v1alpha1", Resource: "deletionbudgets"},
	"ClusterDeletionBudget":    {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterdeletionbudgets"},
	"RetentionPolicy":          {Group: "gleaner.dev", Version: "v1alpha1", Resource: "retentionpolicies"},
	"ClusterRetentionPolicy":   {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterretentionpolicies"},
	"ClusterArchivePolicy":     {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterarchivepolicies"},
}

var clusterScoped = map[string]bool{
	"CustomResourceDefinition": true,
	"Namespace":                true, "ClusterRole": true, "ClusterRoleBinding": true, "ClusterGCPolicy": true, "ClusterPolicyModule": true, "ClusterFinalizer": true,
	"ClusterArchivePolicy": true, "ClusterPause": true, "ClusterDeletionBudget": true, "ClusterRetentionPolicy": true,
	"Node": true, "ImageRemovalRequest": true,
}

func (w *env) client(o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource := w.resourceOf(o.GetKind())
	if clusterScoped[o.GetKind()] {
		return w.objects.Resource(resource)
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(w.ns)
	}
	return w.objects.Resource(resource).Namespace(o.GetNamespace())
}

// apply applies an object in YAML. NS in the text is the test's namespace, which is also the
// default namespace. In policies and finalizers, the current digest of the module is
// filled in.
func (w *env) apply(text string) *unstructured.Unstructured {
	w.Helper()
	o, err := w.tryApply(text)
	if err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *env) tryApply(text string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "NS", w.ns)), &o.Object); err != nil {
		return nil, fmt.Errorf("%w in %s", err, text)
	}
	if gvr := w.resourceOf(o.GetKind()); o.GetAPIVersion() == "" {
		o.SetAPIVersion(gvr.GroupVersion().String())
	}
	client := w.client(o)
	if err := pins.Pin(o, w.getModule); err != nil {
		return nil, err
	}
	applied, err := client.Apply(w.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err == nil {
		w.Cleanup(func() { w.forceDelete(applied) })
	}
	return applied, err
}

// getModule returns the current module; nil if it does not exist.
func (w *env) getModule(kind, namespace, name string) *unstructured.Unstructured {
	m := &unstructured.Unstructured{}
	m.SetGroupVersionKind(resources[kind].GroupVersion().WithKind(kind))
	m.SetNamespace(namespace)
	m, err := w.client(m).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return m
}

// forceDelete deletes an object, regardless of finalizers, when its test is over.
func (w *env) forceDelete(o *unstructured.Unstructured) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), timeout)
	defer cancel()
	client := w.client(o)
	_ = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	_, _ = client.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`), metav1.PatchOptions{})
}

// applyPolicy applies a policy or a module, and waits until its status is of the current
// generation.
func (w *env) applyPolicy(text string) *unstructured.Unstructured {
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
func (w *env) condition(o *unstructured.Unstructured, kind string) metav1.Condition {
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

// waitForCondition waits for a condition whose message contains a text.
func (w *env) waitForCondition(o *unstructured.Unstructured, kind string, status metav1.ConditionStatus, reason, message string) {
	w.Helper()
	w.eventually(func() error {
		c := w.condition(w.get(o), kind)
		if c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			return fmt.Errorf("%s %s: %s is %s, %s: %s", o.GetKind(), o.GetName(), kind, c.Status, c.Reason, c.Message)
		}
		return nil
	})
}

// createConfigMap creates a ConfigMap with owners.
func (w *env) createConfigMap(name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	return w.createObject("ConfigMap", name, nil, owners...)
}

// createObject creates an object of a kind, with labels and owners.
func (w *env) createObject(kind, name string, labels map[string]string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetKind(kind)
	o.SetAPIVersion(w.resourceOf(kind).GroupVersion().String())
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
	w.Cleanup(func() { w.forceDelete(made) })
	return made
}

// get reads an object; the result has no name if it does not exist.
func (w *env) get(o *unstructured.Unstructured) *unstructured.Unstructured {
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

func (w *env) delete(o *unstructured.Unstructured) {
	w.Helper()
	w.deleteWithPolicy(o, metav1.DeletePropagationBackground)
}

func (w *env) deleteWithPolicy(o *unstructured.Unstructured, policy metav1.DeletionPropagation) {
	w.Helper()
	if err := w.client(o).Delete(w.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		w.Fatal(err)
	}
}

// patch applies a merge patch.
func (w *env) patch(o *unstructured.Unstructured, text string) {
	w.Helper()
	if err := w.tryPatch(o, text); err != nil {
		w.Fatal(err)
	}
}

func (w *env) tryPatch(o *unstructured.Unstructured, text string) error {
	w.Helper()
	_, err := w.client(o).Patch(w.Context(), o.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{})
	return err
}

func (w *env) eventually(ask func() error) {
	w.Helper()
	devtest.Eventually(w, timeout, ask)
}

// waitForDeletion waits until objects do not exist any more.
func (w *env) waitForDeletion(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		w.eventually(func() error {
			if w.get(o).GetName() != "" {
				return fmt.Errorf("%s %s still exists; %s", o.GetKind(), o.GetName(), w.describeDecisions(o))
			}
			return nil
		})
	}
}

// waitForDecision waits for a decision about an object.
func (w *env) waitForDecision(o *unstructured.Unstructured, reason string) record.Entry {
	w.Helper()
	var found record.Entry
	w.eventually(func() error {
		for _, e := range w.collector.Records(o.GetUID()) {
			if string(e.Reason) == reason && (e.Result == "" || e.Result == "Done") {
				found = e
				return nil
			}
		}
		return errors.New(w.describeDecisions(o))
	})
	return found
}

// waitForDeletionDecision waits for the decision that an object is deleted: by Gleaner, or in companion mode by
// the built-in collector.
func (w *env) waitForDeletionDecision(o *unstructured.Unstructured) record.Entry {
	w.Helper()
	var found record.Entry
	w.eventually(func() error {
		for _, e := range w.collector.Records(o.GetUID()) {
			if e.Reason == decide.OwnersAbsent && e.Result == "Done" || *companionMode && e.Reason == decide.DeletedByCollector {
				found = e
				return nil
			}
		}
		return errors.New(w.describeDecisions(o))
	})
	return found
}

// expectKept waits for a decision, and checks that the object still exists.
func (w *env) expectKept(o *unstructured.Unstructured, reason string) record.Entry {
	w.Helper()
	e := w.waitForDecision(o, reason)
	if live := w.get(o); live.GetName() == "" || live.GetDeletionTimestamp() != nil {
		w.Fatalf("%s %s is gone or terminating; %s", o.GetKind(), o.GetName(), w.describeDecisions(o))
	}
	return e
}

func (w *env) describeDecisions(o *unstructured.Unstructured) string {
	var texts []string
	for _, e := range w.collector.Records(o.GetUID()) {
		texts = append(texts, fmt.Sprintf("%s %s %s", e, e.Result, e.Error))
	}
	return fmt.Sprintf("decided: %q", texts)
}

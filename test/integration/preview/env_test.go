package preview

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/admit"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/test/pins"
)

// resources are the resources of objects in scenarios, by kind.
var resources = map[string]schema.GroupVersionResource{
	"ConfigMap":             {Version: "v1", Resource: "configmaps"},
	"Secret":                {Version: "v1", Resource: "secrets"},
	"ReplicationController": {Version: "v1", Resource: "replicationcontrollers"},
	"PersistentVolumeClaim": {Version: "v1", Resource: "persistentvolumeclaims"},
	"Namespace":             {Version: "v1", Resource: "namespaces"},

	"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"Widget":                   {Group: "preview.example.com", Version: "v1", Resource: "widgets"},

	"GCPolicy":            {Group: "gleaner.dev", Version: "v1alpha1", Resource: "gcpolicies"},
	"ClusterGCPolicy":     {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clustergcpolicies"},
	"ClusterPolicyModule": {Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterpolicymodules"},
}

// env is one test's namespace with the objects in it.
type env struct {
	*testing.T
	collector *run.Operator
	config    *rest.Config
	objects   dynamic.Interface
	ns        string
	created   map[string]*unstructured.Unstructured // by name
	proposed  []*unstructured.Unstructured          // previews treat them as if they were applied
}

func newEnv(t *testing.T) *env {
	t.Helper()
	c := sharedCollector(t)
	config := devtest.Shared(t).RESTConfig()
	config.QPS = -1
	w := &env{T: t, collector: c, config: config, objects: dynamic.NewForConfigOrDie(config), ns: devtest.Namespace(t, config), created: map[string]*unstructured.Unstructured{}}
	t.Cleanup(w.releaseAll)
	return w
}

func (w *env) client(kind string) dynamic.ResourceInterface {
	switch kind {
	case "Namespace", "CustomResourceDefinition", "ClusterGCPolicy", "ClusterPolicyModule":
		return w.objects.Resource(resources[kind])
	}
	return w.objects.Resource(resources[kind]).Namespace(w.ns)
}

// releaseAll releases all objects of the test.
func (w *env) releaseAll() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), timeout)
	defer cancel()
	for _, o := range w.created {
		_ = w.client(o.GetKind()).Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		_, _ = w.client(o.GetKind()).Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`), metav1.PatchOptions{})
	}
}

// applyPolicies applies resources of Gleaner, in which NS is the test's namespace, and
// waits until they are observed.
func (w *env) applyPolicies(text string) {
	w.Helper()
	for _, o := range w.parseResources(text) {
		made, err := w.client(o.GetKind()).Create(w.Context(), o, metav1.CreateOptions{})
		if err != nil {
			w.Fatal(err)
		}
		w.created[made.GetName()] = made
		devtest.Eventually(w, timeout, func() error {
			live, err := w.client(o.GetKind()).Get(w.Context(), o.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if observed, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration"); observed != live.GetGeneration() {
				return fmt.Errorf("%s is not observed yet", o.GetName())
			}
			return nil
		})
	}
}

// parseResources parses resources of Gleaner.
func (w *env) parseResources(text string) []*unstructured.Unstructured {
	w.Helper()
	var list []*unstructured.Unstructured
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "NS", w.ns), "\n---\n") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			w.Fatal(err)
		}
		o.SetAPIVersion("gleaner.dev/v1alpha1")
		list = append(list, o)
	}
	for _, o := range list {
		if err := pins.Pin(o, func(kind, _, name string) *unstructured.Unstructured {
			for _, m := range list {
				if m.GetKind() == kind && m.GetName() == name {
					return m
				}
			}
			return nil
		}); err != nil {
			w.Fatal(err)
		}
	}
	return list
}

// propose makes previews treat resources as if they were applied.
func (w *env) propose(text string) {
	w.Helper()
	w.proposed = w.parseResources(text)
	for _, o := range w.proposed {
		if err := admit.Admit(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
}

// create creates objects, one a line: KIND NAME [owners=NAME[!],…] [finalizers=NAME,…]
// [labels=NAME:VALUE,…] [held]. An owner with ! is blocked by the object; an owner that was
// not created is missing. With held, the hold of a policy is waited for.
func (w *env) create(text string) {
	w.Helper()
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetKind(words[0])
		o.SetAPIVersion(resources[words[0]].GroupVersion().String())
		o.SetName(words[1])
		held := false
		for _, word := range words[2:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "owners":
				o.SetOwnerReferences(w.references(value))
			case "finalizers":
				o.SetFinalizers(strings.Split(value, ","))
			case "labels":
				name, text, _ := strings.Cut(value, ":")
				o.SetLabels(map[string]string{name: text})
			case "held":
				held = true
			}
		}
		switch words[0] {
		case "ReplicationController":
			o.Object["spec"] = map[string]any{"replicas": int64(0), "selector": map[string]any{"app": "none"}, "template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "none"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "none", "image": "none"}}},
			}}
		case "PersistentVolumeClaim":
			o.Object["spec"] = map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Mi"}}}
		}
		made, err := w.client(words[0]).Create(w.Context(), o, metav1.CreateOptions{})
		if err != nil {
			w.Fatal(err)
		}
		w.created[made.GetName()] = made
		if held {
			w.eventually(made.GetName(), func(live *unstructured.Unstructured) bool { return slices.Contains(live.GetFinalizers(), graph.Hold) })
		}
	}
}

func (w *env) references(text string) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for word := range strings.SplitSeq(text, ",") {
		name, blocks := strings.CutSuffix(word, "!")
		ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID("no-" + name)}
		if owner := w.created[name]; owner != nil {
			ref.APIVersion, ref.Kind, ref.UID = owner.GetAPIVersion(), owner.GetKind(), owner.GetUID()
		}
		if blocks {
			ref.BlockOwnerDeletion = ptr.To(true)
		}
		refs = append(refs, ref)
	}
	return refs
}

// get reads an object; nil if it does not exist.
func (w *env) get(name string) *unstructured.Unstructured {
	w.Helper()
	made := w.created[name]
	live, err := w.client(made.GetKind()).Get(w.Context(), name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && live.GetUID() != made.GetUID():
		return nil
	case err != nil:
		w.Fatal(err)
	}
	return live
}

func (w *env) eventually(name string, is func(*unstructured.Unstructured) bool) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		if live := w.get(name); live == nil || !is(live) {
			return fmt.Errorf("%s: %v", name, live)
		}
		return nil
	})
}

// preview previews the deletion of objects, NAME[,NAME…] of one namespace.
func (w *env) preview(targets string, cascade metav1.DeletionPropagation) *preview.Preview {
	w.Helper()
	var ids []graph.ID
	namespace := ""
	for name := range strings.SplitSeq(targets, ",") {
		o := w.created[name]
		ids, namespace = append(ids, graph.IDOf(o.GetUID())), o.GetNamespace()
	}
	s, err := survey.Live(w.Context(), survey.Options{Config: w.config, Namespace: namespace, Now: time.Now})
	if err != nil {
		w.Fatal(err)
	}
	if len(s.Unread) != 0 {
		w.Fatalf("unread: %v", s.Unread)
	}
	reading, err := preview.ReadPolicies(w.Context(), s, w.config, nil, w.proposed, time.Now())
	if err != nil {
		w.Fatal(err)
	}
	defer reading.Close()
	if cascade == none {
		cascade = ""
	}
	p, err := preview.Delete(w.Context(), preview.Options{
		Survey: s, Config: w.config, Targets: ids, Cascade: cascade, Policies: reading, Now: time.Now(),
	})
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// outcomes returns the predicted outcomes of the test's objects, by name.
func (w *env) outcomes(p *preview.Preview) map[string]string {
	predicted := map[string]string{}
	for _, o := range p.Objects {
		if made := w.created[o.Name]; made == nil || made.GetUID() != o.UID {
			continue
		}
		for _, e := range o.Evaluations {
			if e.Fault != "" {
				w.Logf("preview: %s: %s: %s", o.Name, e.Policy, e.Fault)
			}
		}
		text := o.Outcome.String()
		if o.Outcome == preview.Waits && o.Then != preview.Unknown {
			text += " then " + o.Then.String()
			if o.After > 0 {
				text += " after " + preview.FormatDuration(o.After)
			}
		}
		predicted[o.Name] = text
	}
	return predicted
}

// delete deletes objects, NAME[,NAME…], as kubectl does.
func (w *env) delete(targets string, cascade metav1.DeletionPropagation) {
	w.Helper()
	options := metav1.DeleteOptions{PropagationPolicy: &cascade}
	if cascade == none {
		options.PropagationPolicy = nil
	}
	for name := range strings.SplitSeq(targets, ",") {
		if err := w.client(w.created[name].GetKind()).Delete(w.Context(), name, options); err != nil {
			w.Fatal(err)
		}
	}
}

// expectOutcomes waits until the state is as predicted, and checks that it stays so once the
// collector is idle.
func (w *env) expectOutcomes(predicted map[string]string) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error { return w.diff(predicted) })
	w.waitUntilIdle()
	if err := w.diff(predicted); err != nil {
		w.Fatalf("state was as predicted, and is no longer: %v", err)
	}
}

// diff returns the first difference from what was predicted.
func (w *env) diff(predicted map[string]string) error {
	w.Helper()
	for _, name := range slices.Sorted(maps.Keys(predicted)) {
		live := w.get(name)
		outcome, _, _ := strings.Cut(predicted[name], " ")
		switch {
		case outcome == "Unknown":
		case (outcome == "Goes") != (live == nil):
			return fmt.Errorf("%s: predicted %s, got %v; decided: %v", name, predicted[name], describe(live), w.collector.Records(w.created[name].GetUID()))
		case outcome == "Stays" && live.GetDeletionTimestamp() != nil:
			return fmt.Errorf("%s: predicted %s, got %v", name, predicted[name], describe(live))
		}
	}
	return nil
}

func describe(live *unstructured.Unstructured) string {
	if live == nil {
		return "gone"
	}
	return fmt.Sprintf("exists, terminating %t, finalizers %v, owners %v", live.GetDeletionTimestamp() != nil, live.GetFinalizers(), live.GetOwnerReferences())
}

// waitUntilIdle waits until the collector is idle: until it has collected an object that was
// created last.
func (w *env) waitUntilIdle() {
	w.Helper()
	for _, name := range []string{"marker", "marker2"} {
		owner := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
		made, err := w.client("ConfigMap").Create(w.Context(), owner, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return // its namespace is being deleted, or gone
		}
		if err != nil {
			w.Fatal(err)
		}
		child := owner.DeepCopy()
		child.SetName(name + "-child")
		child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: made.GetUID()}})
		if _, err := w.client("ConfigMap").Create(w.Context(), child, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
		if err := w.client("ConfigMap").Delete(w.Context(), name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
			w.Fatal(err)
		}
		devtest.Eventually(w, timeout, func() error {
			_, err := w.client("ConfigMap").Get(w.Context(), child.GetName(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) && w.collector.Pending() == 0 {
				return nil
			}
			return fmt.Errorf("marker still exists, or the queue is not empty: %w", err)
		})
	}
}

// removeFinalizers removes the finalizers that the test put on an object.
func (w *env) removeFinalizers(name string) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		live := w.get(name)
		if live == nil {
			return nil
		}
		kept := slices.DeleteFunc(live.GetFinalizers(), func(f string) bool { return f == "test.example.com/x" })
		if len(kept) == len(live.GetFinalizers()) {
			return nil
		}
		live.SetFinalizers(kept)
		_, err := w.client(live.GetKind()).Update(w.Context(), live, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

package whose

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies"
)

// Book is Gleaner's resources, as they were read. What could not be read is in
// Unread, and counts as if it might say anything.
type Book struct {
	Finalizers []Serving
	Policies   []Policy
	Modules    []Module
	Installed  bool     // Gleaner's types are served
	Unread     []string // kinds that could not be read, each with the reason

	At time.Time // when they were read; zero: they are from files

	labels map[string]labels.Set // of namespaces that policies select by
}

// Serving is a Finalizer or ClusterFinalizer.
type Serving struct {
	metav1.ObjectMeta
	Kind   string
	Entry  string // of metadata.finalizers
	Spec   v1alpha1.FinalizerSpec
	Status v1alpha1.FinalizerStatus
}

// Policy is a GCPolicy or ClusterGCPolicy.
type Policy struct {
	metav1.ObjectMeta
	Kind   string
	Spec   v1alpha1.GCPolicySpec
	Status v1alpha1.GCPolicyStatus
}

// Module is a PolicyModule or ClusterPolicyModule.
type Module struct {
	metav1.ObjectMeta
	Kind   string
	Spec   v1alpha1.PolicyModuleSpec
	Status v1alpha1.PolicyModuleStatus
}

// String returns the kind and the name, as records have it.
func (s Serving) String() string { return nameOf(s.Kind, s.ObjectMeta) }

// String returns the kind and the name, as records have it.
func (p Policy) String() string { return nameOf(p.Kind, p.ObjectMeta) }

// String returns the kind and the name, as records have it.
func (m Module) String() string { return nameOf(m.Kind, m.ObjectMeta) }

func nameOf(kind string, o metav1.ObjectMeta) string {
	if o.Namespace == "" {
		return kind + " " + o.Name
	}
	return kind + " " + o.Namespace + "/" + o.Name
}

// resource is how kubectl takes it.
func (s Serving) resource() string {
	if s.Namespace == "" {
		return "clusterfinalizer/" + s.Name
	}
	return "finalizer/" + s.Name + " -n " + s.Namespace
}

// failing is why the finalizer can't be served, if it says so.
func (s Serving) failing() *metav1.Condition {
	for _, name := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionModuleReady} {
		if c := meta.FindStatusCondition(s.Status.Conditions, name); c != nil && c.Status == metav1.ConditionFalse {
			return c
		}
	}
	return nil
}

// Read reads all of Gleaner's resources, and the labels of namespaces if a policy
// goes by them.
func Read(ctx context.Context, c client.Reader) *Book {
	b := &Book{Installed: true, At: time.Now(), labels: map[string]labels.Set{}}
	var (
		finalizers        v1alpha1.FinalizerList
		clusterFinalizers v1alpha1.ClusterFinalizerList
		gcPolicies        v1alpha1.GCPolicyList
		clusterPolicies   v1alpha1.ClusterGCPolicyList
		modules           v1alpha1.PolicyModuleList
		clusterModules    v1alpha1.ClusterPolicyModuleList
	)
	b.read(ctx, c, &finalizers, "Finalizers")
	b.read(ctx, c, &clusterFinalizers, "ClusterFinalizers")
	b.read(ctx, c, &gcPolicies, "GCPolicies")
	b.read(ctx, c, &clusterPolicies, "ClusterGCPolicies")
	b.read(ctx, c, &modules, "PolicyModules")
	b.read(ctx, c, &clusterModules, "ClusterPolicyModules")
	for _, f := range finalizers.Items {
		b.addFinalizer(v1alpha1.KindFinalizer, f.ObjectMeta, f.Spec, f.Status)
	}
	for _, f := range clusterFinalizers.Items {
		b.addFinalizer(v1alpha1.KindClusterFinalizer, f.ObjectMeta, f.Spec, f.Status)
	}
	for _, p := range gcPolicies.Items {
		b.Policies = append(b.Policies, Policy{p.ObjectMeta, v1alpha1.KindGCPolicy, p.Spec, p.Status})
	}
	for _, p := range clusterPolicies.Items {
		b.Policies = append(b.Policies, Policy{p.ObjectMeta, v1alpha1.KindClusterGCPolicy, p.Spec, p.Status})
	}
	for _, m := range modules.Items {
		b.Modules = append(b.Modules, Module{m.ObjectMeta, v1alpha1.KindPolicyModule, m.Spec, m.Status})
	}
	for _, m := range clusterModules.Items {
		b.Modules = append(b.Modules, Module{m.ObjectMeta, v1alpha1.KindClusterPolicyModule, m.Spec, m.Status})
	}
	b.readLabels(ctx, c)
	return b
}

// Of makes a Book of objects from files. Those that are not Gleaner's are left out.
func Of(objects []*unstructured.Unstructured) (*Book, error) {
	b := &Book{Installed: true, labels: map[string]labels.Set{}}
	for _, o := range objects {
		if o.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
			continue
		}
		if err := b.take(o); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return b, nil
}

func (b *Book) take(o *unstructured.Unstructured) error {
	into := func(typed any) error { return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed) }
	switch o.GetKind() {
	case v1alpha1.KindFinalizer, v1alpha1.KindClusterFinalizer:
		var f v1alpha1.ClusterFinalizer // of one shape with the other
		if err := into(&f); err != nil {
			return err
		}
		b.addFinalizer(o.GetKind(), f.ObjectMeta, f.Spec, f.Status)
	case v1alpha1.KindGCPolicy, v1alpha1.KindClusterGCPolicy:
		var p v1alpha1.ClusterGCPolicy
		if err := into(&p); err != nil {
			return err
		}
		b.Policies = append(b.Policies, Policy{p.ObjectMeta, o.GetKind(), p.Spec, p.Status})
	case v1alpha1.KindPolicyModule, v1alpha1.KindClusterPolicyModule:
		var m v1alpha1.ClusterPolicyModule
		if err := into(&m); err != nil {
			return err
		}
		b.Modules = append(b.Modules, Module{m.ObjectMeta, o.GetKind(), m.Spec, m.Status})
	}
	return nil
}

func (b *Book) addFinalizer(kind string, meta metav1.ObjectMeta, spec v1alpha1.FinalizerSpec, status v1alpha1.FinalizerStatus) {
	entry := spec.Finalizer
	if kind == v1alpha1.KindFinalizer {
		entry = meta.Namespace + "." + v1alpha1.GroupVersion.Group + "/" + meta.Name
	}
	b.Finalizers = append(b.Finalizers, Serving{meta, kind, entry, spec, status})
}

func (b *Book) read(ctx context.Context, c client.Reader, list client.ObjectList, kind string) {
	err := c.List(ctx, list)
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		b.Installed = false // there are none of a type that is not served
	case err != nil:
		b.Unread = append(b.Unread, fmt.Sprintf("%s: %v", kind, err))
	}
}

func (b *Book) readLabels(ctx context.Context, c client.Reader) {
	if !slices.ContainsFunc(b.Policies, func(p Policy) bool { return p.Spec.NamespaceSelector != nil }) {
		return
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NamespaceList"})
	if err := c.List(ctx, &list); err != nil {
		b.Unread = append(b.Unread, fmt.Sprintf("Namespaces: %v", err))
		return
	}
	for _, n := range list.Items {
		b.labels[n.Name] = n.Labels
	}
}

// Stuck are the objects that Finalizers and ClusterFinalizers say they can't go on with.
// Each names the first of them.
func (b *Book) Stuck() map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, s := range b.Finalizers {
		for _, stuck := range s.Status.Stuck {
			found[types.UID(stuck.UID)] = true
		}
	}
	return found
}

// serving are the Finalizers and ClusterFinalizers that serve a finalizer.
func (b *Book) serving(finalizer string) []Serving {
	var found []Serving
	for _, s := range b.Finalizers {
		if s.Entry == finalizer {
			found = append(found, s)
		}
	}
	return found
}

// Propagating names the policies in force that may have an object held, as far as
// their rules and selectors tell: their conditions are not looked at. It is unsure
// if one may be missing, since it could not be read.
func (b *Book) Propagating(o Object) (names []string, unsure bool) {
	for _, p := range b.Policies {
		if p.Holds() && b.selects(p, o) {
			names = append(names, p.String())
		}
	}
	return names, len(b.Unread) != 0
}

func (b *Book) selects(p Policy, o Object) bool {
	if p.Namespace != "" && p.Namespace != o.GetNamespace() {
		return false
	}
	rule := func(r v1alpha1.ResourceRule) bool {
		selected, _ := policies.Rule{Groups: r.APIGroups, Resources: r.Resources}.Selects(o.Resource)
		return selected
	}
	if !slices.ContainsFunc(p.Spec.Resources, rule) {
		return false
	}
	if known, ok := b.labels[o.GetNamespace()]; ok && !matches(p.Spec.NamespaceSelector, known) {
		return false
	}
	return matches(p.Spec.ObjectSelector, o.GetLabels())
}

// matches reports whether labels are selected. A selector that can't be read may
// select anything.
func matches(s *metav1.LabelSelector, set labels.Set) bool {
	if s == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err != nil || selector.Matches(set)
}

// Answers reports whether a policy answers a hook, or may: of a module that is not
// known to the operator yet that can't be told.
func (p Policy) Answers(hook v1alpha1.PolicyHook) bool {
	switch {
	case p.Spec.Module == nil:
		f := p.Spec.Fixed
		return f != nil && (hook == "collect" && f.Collect != nil || hook == "propagate" && f.Propagate != nil)
	case len(p.Spec.Hooks) != 0 && !slices.Contains(p.Spec.Hooks, hook):
		return false
	case len(p.Status.Hooks) != 0 && p.Status.ObservedGeneration == p.Generation:
		return slices.Contains(p.Status.Hooks, string(hook))
	default:
		return true
	}
}

// Holds reports whether a policy has objects held, or may.
func (p Policy) Holds() bool { return p.Spec.Mode == v1alpha1.ModeEnforce && p.Answers("propagate") }

// MayHold reports whether a policy may have an object held of which no labels are
// known. It is unsure if one may be missing, since it could not be read.
func (b *Book) MayHold(o Object) (held, unsure bool) {
	for _, p := range b.Policies {
		if p.Spec.ObjectSelector = nil; p.Holds() && b.selects(p, o) {
			held = true
		}
	}
	return held, len(b.Unread) != 0
}

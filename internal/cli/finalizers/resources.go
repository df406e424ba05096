package finalizers

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

	"github.com/gleaner-dev/gleaner/crds/resources"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/pause"
	"github.com/gleaner-dev/gleaner/operator/pausestore"
	"github.com/gleaner-dev/gleaner/policies"
)

// Resources contains Gleaner's resources as they were read. Kinds that could not be read are in
// Unread, and are treated as if they could contain anything.
type Resources struct {
	Finalizers []FinalizerResource
	Policies   []Policy
	Modules    []Module
	Archives   []Archive
	Retentions []Retention
	Pauses     []pausestore.Resource
	Budgets    []budgetstore.Resource
	Installed  bool     // Gleaner's types are served
	Unread     []string // kinds that could not be read, each with the reason

	ReadAt time.Time // when they were read; zero: from files

	labels map[string]labels.Set // of namespaces, for namespace selectors
}

// FinalizerResource is a Finalizer or ClusterFinalizer.
type FinalizerResource struct {
	metav1.ObjectMeta
	Kind      string
	Finalizer string // of metadata.finalizers
	Spec      v1alpha1.FinalizerSpec
	Status    v1alpha1.FinalizerStatus
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

// Retention is a RetentionPolicy or ClusterRetentionPolicy.
type Retention struct {
	metav1.ObjectMeta
	Kind   string
	Spec   v1alpha1.RetentionPolicySpec
	Status v1alpha1.RetentionPolicyStatus
}

// String returns the kind and the name, in the format of records.
func (r Retention) String() string { return nameOf(r.Kind, r.ObjectMeta) }

// Archive is an ArchivePolicy or ClusterArchivePolicy.
type Archive struct {
	metav1.ObjectMeta
	Kind   string
	Spec   v1alpha1.ArchivePolicySpec
	Status v1alpha1.ArchivePolicyStatus
}

// String returns the kind and the name, in the format of records.
func (a Archive) String() string { return nameOf(a.Kind, a.ObjectMeta) }

// Finalizer returns the entry of metadata.finalizers that keeps objects until they are archived.
func (a Archive) Finalizer() string { return v1alpha1.ArchiveFinalizer(a.Namespace, a.Name) }

// String returns the kind and the name, in the format of records.
func (s FinalizerResource) String() string { return nameOf(s.Kind, s.ObjectMeta) }

// String returns the kind and the name, in the format of records.
func (p Policy) String() string { return nameOf(p.Kind, p.ObjectMeta) }

// String returns the kind and the name, in the format of records.
func (m Module) String() string { return nameOf(m.Kind, m.ObjectMeta) }

func nameOf(kind string, o metav1.ObjectMeta) string {
	if o.Namespace == "" {
		return kind + " " + o.Name
	}
	return kind + " " + o.Namespace + "/" + o.Name
}

// kubectlArgs returns the resource as kubectl arguments.
func (s FinalizerResource) kubectlArgs() string {
	if s.Namespace == "" {
		return "clusterfinalizer/" + s.Name
	}
	return "finalizer/" + s.Name + " -n " + s.Namespace
}

// failedCondition returns the condition why the finalizer is not active, if there is one.
func (s FinalizerResource) failedCondition() *metav1.Condition {
	for _, name := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionModuleReady} {
		if c := meta.FindStatusCondition(s.Status.Conditions, name); c != nil && c.Status == metav1.ConditionFalse {
			return c
		}
	}
	return nil
}

// Read reads all of Gleaner's resources, and the labels of namespaces if a policy selects by
// them.
func Read(ctx context.Context, c client.Reader) *Resources {
	b := &Resources{Installed: true, ReadAt: time.Now(), labels: map[string]labels.Set{}}
	all, _ := resources.Read(func(kind string, into resources.List) error { // without an error
		b.read(ctx, c, into, kind)
		return nil
	})
	for _, f := range all.Finalizers {
		b.addFinalizer(f.Kind, f.Meta, f.Spec, f.Status)
	}
	for _, p := range all.Policies {
		b.Policies = append(b.Policies, Policy{p.Meta, p.Kind, p.Spec, p.Status})
	}
	for _, m := range all.Modules {
		b.Modules = append(b.Modules, Module{m.Meta, m.Kind, m.Spec, m.Status})
	}
	for _, a := range all.Archives {
		b.Archives = append(b.Archives, Archive{a.Meta, a.Kind, a.Spec, a.Status})
	}
	for _, r := range all.Retentions {
		b.Retentions = append(b.Retentions, Retention{r.Meta, r.Kind, r.Spec, r.Status})
	}
	b.readPauses(ctx, c)
	b.readBudgets(ctx, c)
	b.readNamespaceLabels(ctx, c)
	return b
}

// readPauses reads the pauses. Where their types are not installed, there are none.
func (b *Resources) readPauses(ctx context.Context, c client.Reader) {
	all, _, err := pausestore.Read(ctx, c, livelist.Unserved)
	if err != nil {
		b.Unread = append(b.Unread, fmt.Sprintf("Pauses: %v", err))
	}
	b.Pauses = all
}

// Paused describes the pauses in force of what is in a namespace, or of everything if the namespace is
// "", for people.
func (b *Resources) Paused(namespace string, now time.Time) []string {
	var lines []string
	for _, r := range b.Pauses {
		p := r.Pause()
		if p.Ended(now) || p.Namespace != "" && namespace != "" && p.Namespace != namespace {
			continue
		}
		what := "Everything"
		if p.Policy != "" {
			what = "What " + p.Policy + " decides"
		}
		if p.Namespace != "" {
			what += " in namespace " + p.Namespace
		}
		lines = append(lines, what+" is "+pause.Message(p)+".")
	}
	return lines
}

// FromObjects returns the Book of objects from files. Objects that are not Gleaner's are ignored.
func FromObjects(objects []*unstructured.Unstructured) (*Resources, error) {
	b := &Resources{Installed: true, labels: map[string]labels.Set{}}
	for _, o := range objects {
		if o.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
			continue
		}
		if err := b.add(o); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return b, nil
}

func (b *Resources) add(o *unstructured.Unstructured) error {
	into := func(typed any) error { return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed) }
	switch o.GetKind() {
	case v1alpha1.KindFinalizer, v1alpha1.KindClusterFinalizer:
		var f v1alpha1.ClusterFinalizer // a Finalizer has the same fields
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
	case v1alpha1.KindArchivePolicy, v1alpha1.KindClusterArchivePolicy:
		var a v1alpha1.ClusterArchivePolicy
		if err := into(&a); err != nil {
			return err
		}
		b.Archives = append(b.Archives, Archive{a.ObjectMeta, o.GetKind(), a.Spec, a.Status})
	case v1alpha1.KindRetentionPolicy, v1alpha1.KindClusterRetentionPolicy:
		var r v1alpha1.ClusterRetentionPolicy
		if err := into(&r); err != nil {
			return err
		}
		b.Retentions = append(b.Retentions, Retention{r.ObjectMeta, o.GetKind(), r.Spec, r.Status})
	}
	return nil
}

func (b *Resources) addFinalizer(kind string, meta metav1.ObjectMeta, spec v1alpha1.FinalizerSpec, status v1alpha1.FinalizerStatus) {
	entry := spec.Finalizer
	if kind == v1alpha1.KindFinalizer {
		entry = meta.Namespace + "." + v1alpha1.GroupVersion.Group + "/" + meta.Name
	}
	b.Finalizers = append(b.Finalizers, FinalizerResource{meta, kind, entry, spec, status})
}

func (b *Resources) read(ctx context.Context, c client.Reader, list client.ObjectList, kind string) {
	err := c.List(ctx, list)
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		if !isOptional(kind) {
			b.Installed = false // the type is not installed
		}
	case err != nil:
		b.Unread = append(b.Unread, fmt.Sprintf("%s: %v", plural(kind), err))
	}
}

// isOptional reports whether not every installation has a kind.
func isOptional(kind string) bool {
	switch kind {
	case v1alpha1.KindArchivePolicy, v1alpha1.KindClusterArchivePolicy, v1alpha1.KindRetentionPolicy, v1alpha1.KindClusterRetentionPolicy:
		return true
	default:
		return false
	}
}

func plural(kind string) string {
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return stem + "ies"
	}
	return kind + "s"
}

func (b *Resources) readNamespaceLabels(ctx context.Context, c client.Reader) {
	if !slices.ContainsFunc(b.Policies, func(p Policy) bool { return p.Spec.NamespaceSelector != nil }) &&
		!slices.ContainsFunc(b.Budgets, func(r budgetstore.Resource) bool { return r.Spec.NamespaceSelector != nil }) {
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

// StuckObjects returns the objects that Finalizers, ClusterFinalizers and archive policies report as
// stuck. Their status lists only the first ones.
func (b *Resources) StuckObjects() map[types.UID]bool {
	found := map[types.UID]bool{}
	for _, s := range b.Finalizers {
		for _, stuck := range s.Status.StalledObjects {
			found[types.UID(stuck.UID)] = true
		}
	}
	for _, a := range b.Archives {
		for _, stuck := range a.Status.StalledObjects {
			found[types.UID(stuck.UID)] = true
		}
	}
	return found
}

// resourcesFor returns the Finalizers and ClusterFinalizers with a finalizer.
func (b *Resources) resourcesFor(finalizer string) []FinalizerResource {
	var found []FinalizerResource
	for _, s := range b.Finalizers {
		if s.Finalizer == finalizer {
			found = append(found, s)
		}
	}
	return found
}

// HoldingPolicies returns the names of enforced policies that may hold an object, according to
// their rules and selectors; match conditions are ignored. Unsure means that some policies
// could not be read.
func (b *Resources) HoldingPolicies(o Object) (names []string, unsure bool) {
	for _, p := range b.Policies {
		if p.Holds() && b.selects(p, o) {
			names = append(names, p.String())
		}
	}
	return names, len(b.Unread) != 0
}

func (b *Resources) selects(p Policy, o Object) bool {
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

// matches reports whether labels are selected. An invalid selector may select anything.
func matches(s *metav1.LabelSelector, set labels.Set) bool {
	if s == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err != nil || selector.Matches(set)
}

// HasHook reports whether a policy has a hook, or may have it: the hooks of a module are
// unknown until the operator has loaded it.
func (p Policy) HasHook(hook v1alpha1.PolicyHook) bool {
	switch {
	case p.Spec.Module == nil:
		f := p.Spec.Fixed
		return f != nil && (hook == "collect" && f.Collect != nil || hook == "propagate" && f.Propagate != nil ||
			hook == "retain" && f.Retain != nil || hook == "protect" && f.Protect != nil && p.Namespace == "")
	case hook == "protect" && p.Namespace != "":
		return false
	case len(p.Spec.Hooks) != 0 && !slices.Contains(p.Spec.Hooks, hook):
		return false
	case len(p.Status.Hooks) != 0 && p.Status.ObservedGeneration == p.Generation:
		return slices.Contains(p.Status.Hooks, string(hook))
	default:
		return true
	}
}

// Holds reports whether a policy holds objects, or may do so.
func (p Policy) Holds() bool { return p.Spec.Mode == v1alpha1.ModeEnforce && p.HasHook("propagate") }

// Protects reports whether a policy may deny users' requests to delete objects.
func (p Policy) Protects() bool {
	f := p.Spec.Fixed
	return p.HasHook("protect") && (f == nil || f.Protect != nil && f.Protect.Decision == v1alpha1.ProtectDeny)
}

// MayHold reports whether a policy may hold an object whose labels are unknown. Unsure means
// that some policies could not be read.
func (b *Resources) MayHold(o Object) (held, unsure bool) {
	for _, p := range b.Policies {
		if p.Spec.ObjectSelector = nil; p.Holds() && b.selects(p, o) {
			held = true
		}
	}
	return held, len(b.Unread) != 0
}

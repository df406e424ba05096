// Package policyset builds the set of policies, finalizers, archive policies and retention policies in
// force from the custom resources that declare them and the states of their modules, and publishes it
// as an immutable Snapshot.
//
// Build is a function of what it is given. A Publisher reads all resources whenever one
// of them may have changed, and builds again when the state of a module changes. What
// could not be read leaves the current Snapshot as it was: unread is not absent. No policy
// waits for the module of another one: while its own module loads, it holds what it governs.
//
// It knows nothing of leaders, holds, webhooks, events and status.
package policyset

import (
	"iter"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/selectors"
	"github.com/gleaner-dev/gleaner/policies"
)

// Snapshot is the policies and finalizers in force at one moment. Nothing in it is changed
// after it was published, and readers must not change it either.
type Snapshot struct {
	// Fingerprint identifies the policies and modules that it was built from, by UID and
	// generation. It is the same on every replica.
	Fingerprint string

	// Revision is greater than that of every earlier Snapshot of this process that
	// evaluates anything else. Snapshots of the same Revision differ in the states of
	// modules only.
	Revision uint64

	Set        *policies.Set
	Selectors  *selectors.Index // of Set and of Archives
	Policies   []*Policy
	Finalizers []*Finalizer
	Modules    []*Module
	Archives   []*Archive
	Retentions []*Retention

	serving    []*policies.Finalizer
	archiveSet *policies.Set
	archiveOf  map[*policies.Policy]*Archive
	buildTime  time.Duration
}

// Serving returns all finalizers, those of archive policies too, including those that are not
// ready. It is safe to call on nil.
func (s *Snapshot) Serving() []*policies.Finalizer {
	if s == nil {
		return nil
	}
	return s.serving
}

// Served is a resource whose finalizer is served.
type Served struct {
	*Declaration
	Finalizer *policies.Finalizer
}

// Served yields the resources of all finalizers: Finalizers and archive policies. It is safe to
// call on nil.
func (s *Snapshot) Served() iter.Seq[Served] {
	return func(yield func(Served) bool) {
		if s == nil {
			return
		}
		for _, f := range s.Finalizers {
			if !yield(Served{&f.Declaration, f.Finalizer}) {
				return
			}
		}
		for _, a := range s.Archives {
			if a.Finalizer != nil && !yield(Served{&a.Declaration, a.Finalizer}) {
				return
			}
		}
	}
}

// Loading reports whether anything is loading.
func (s *Snapshot) Loading() bool {
	return s.LoadingSince(func(time.Time) bool { return true })
}

// LoadingSince reports whether anything has been loading since a time that matches.
func (s *Snapshot) LoadingSince(matches func(since time.Time) bool) bool {
	is := func(since time.Time) bool { return !since.IsZero() && matches(since) }
	return slices.ContainsFunc(s.Modules, func(m *Module) bool { return is(m.Loading) }) ||
		slices.ContainsFunc(s.Policies, func(p *Policy) bool { return is(p.Loading) }) ||
		slices.ContainsFunc(s.Finalizers, func(f *Finalizer) bool { return is(f.Loading) })
}

// sameEvaluation reports whether two snapshots of the same resources evaluate the same.
func sameEvaluation(a, b *Snapshot) bool {
	return slices.EqualFunc(a.Policies, b.Policies, func(a, b *Policy) bool {
		p, q := a.Policy, b.Policy
		same := p.Evaluator == q.Evaluator || p.Module == "" && a.Problem == b.Problem // fixed verdicts
		return same && p.NotReadyReason == q.NotReadyReason && p.OnFault == q.OnFault && p.Digest == q.Digest &&
			p.HooksUnknown == q.HooksUnknown && slices.Equal(p.Hooks, q.Hooks)
	}) && slices.EqualFunc(a.Finalizers, b.Finalizers, func(a, b *Finalizer) bool { return a.Finalizer.Equivalent(b.Finalizer) })
}

// Problem is why a resource is not accepted or not ready. The zero Problem is none.
type Problem struct {
	Condition string // that is False because of it
	Reason    string
	Message   string // for the author
}

// IsZero reports whether there is no problem.
func (p Problem) IsZero() bool { return p == Problem{} }

// Module is a PolicyModule or ClusterPolicyModule and the state of its content.
type Module struct {
	Object client.Object // as it was read
	Kind   string
	Key    types.NamespacedName
	Spec   v1alpha1.PolicyModuleSpec

	Content    *modulestore.Module // nil: see Problem
	Pinned     bool                // its source can't have other content later
	Overridden bool                // its content is not what the resource says, and pins do not apply
	Problem    Problem
	Loading    time.Time // since when; zero: it is not loading
	HostError  bool      // the Problem is caused by neither the module nor its source
}

// Ref returns the reference by which the module store knows the module.
func (m *Module) Ref() modulestore.Ref {
	return modulestore.Ref{Namespace: m.Key.Namespace, Name: m.Key.Name}
}

// String returns the kind and the name.
func (m *Module) String() string { return m.Ref().String() }

// Declaration is what policies, finalizers, archive policies and retention policies have in common: a
// custom resource that selects objects, for which the first two evaluate a module or a fixed verdict.
type Declaration struct {
	Object client.Object // as it was read
	Kind   string
	Key    types.NamespacedName
	Selection

	Policy  *policies.Policy
	Engine  v1alpha1.Engine
	Problem Problem
	Loading time.Time // since when its module is loading; zero: it is not

	HostError        bool // the Problem is not caused by the module
	InvalidSelection bool // its selectors or conditions can't be evaluated
}

// Selection is which objects a Declaration is for, as its spec says. Selectors that are
// invalid are nil, which selects everything.
type Selection struct {
	Resources         []v1alpha1.ResourceRule
	NamespaceSelector *metav1.LabelSelector
	ObjectSelector    *metav1.LabelSelector
	MatchConditions   []v1alpha1.MatchCondition
}

// Policy is a GCPolicy or ClusterGCPolicy.
type Policy struct {
	Declaration
	Spec v1alpha1.GCPolicySpec
}

// RequiresHold reports whether the objects that the policy governs get a hold finalizer:
// a client's DELETE would otherwise take effect before the policy is evaluated.
func (p *Policy) RequiresHold() bool {
	return p.Policy.Enforce && !p.Policy.HooksUnknown && p.Policy.HasHook(hostabi.HookPropagate)
}

// Finalizer is a Finalizer or ClusterFinalizer.
type Finalizer struct {
	Declaration
	Spec      v1alpha1.FinalizerSpec
	Finalizer *policies.Finalizer
}

// refuse records a problem, unless there is one already.
func (d *Declaration) refuse(condition, reason, message string) {
	if d.Problem.IsZero() {
		d.Problem = Problem{condition, reason, message}
	}
}

// wait records that the module of the resource is loading.
func (d *Declaration) wait(since time.Time, message string) {
	if d.Problem.IsZero() {
		d.Loading = since
		d.refuse(v1alpha1.ConditionModuleReady, ReasonLoading, message)
	}
}

// ReasonMissingHook is the reason of a Problem with a module that does not implement what a
// resource uses it for.
const ReasonMissingHook = "MissingHook"

// ReasonLoading is the reason of a Problem that is none: the module is being fetched,
// compiled or started, and what it governs is held meanwhile.
const ReasonLoading = "Loading"

package policies

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Wildcard selects every group, or every resource, in a Rule.
const Wildcard = "*"

// Rule selects resources, as admission rules do. "*" selects all.
type Rule struct {
	Groups    []string // "" is the core group
	Resources []string // plural, as in URLs
}

// Selects reports whether a resource is selected, and whether it is selected by
// name.
func (r Rule) Selects(resource schema.GroupResource) (selected, byName bool) {
	group := slices.Contains(r.Groups, resource.Group)
	name := slices.Contains(r.Resources, resource.Resource)
	selected = (group || slices.Contains(r.Groups, Wildcard)) && (name || slices.Contains(r.Resources, Wildcard))
	return selected, selected && group && name
}

// hasWildcard reports whether the rule has a wildcard.
func (r Rule) hasWildcard() bool {
	return slices.Contains(r.Groups, Wildcard) || slices.Contains(r.Resources, Wildcard)
}

// NamedResources returns the resources that the rule lists by name.
func (r Rule) NamedResources() []schema.GroupResource {
	var names []schema.GroupResource
	for _, group := range r.Groups {
		for _, resource := range r.Resources {
			if group != Wildcard && resource != Wildcard {
				names = append(names, schema.GroupResource{Group: group, Resource: resource})
			}
		}
	}
	return names
}

// OnFault says what happens to an object if the evaluation of its policy fails.
type OnFault string

// The fault policies. Any other value, also the zero OnFault, means Hold.
const (
	OnFaultHold    OnFault = "Hold"    // the object is kept, and the policy is evaluated again later
	OnFaultDefault OnFault = "Default" // the next policy is evaluated
)

// Needs says how much of the object a policy receives.
type Needs string

// The parts of an object. Any other value means the whole object.
const (
	NeedsObject    Needs = "Object"    // may cost a read for each decision
	NeedsMetadata  Needs = "Metadata"  // costs one as well; metadata only
	NeedsReference Needs = "Reference" // costs none: name, namespace, UID, owners and the garbage collection finalizers
)

// rank returns how much of the object n is.
func (n Needs) rank() int {
	switch n {
	case NeedsReference:
		return 0
	case NeedsMetadata:
		return 1
	default:
		return 2
	}
}

// LeastNeeds returns the one of two that is less of the object.
func LeastNeeds(a, b Needs) Needs {
	if b.rank() < a.rank() {
		return b
	}
	return a
}

// MostNeeds returns the one of two that is more of the object.
func MostNeeds(a, b Needs) Needs {
	if b.rank() > a.rank() {
		return b
	}
	return a
}

// Evaluation is a verdict, and the resources that its evaluation used.
type Evaluation struct {
	Verdict hostabi.Verdict
	Fuel    int64
	Log     string // written by the module; it may contain data of the object
}

// MeteredEvaluator is an Evaluator that reports the resources used by an evaluation.
type MeteredEvaluator interface {
	Evaluator
	EvaluateMetered(ctx context.Context, request hostabi.Request) (Evaluation, error)
}

// ReadRule selects resources that a policy may read.
type ReadRule struct {
	Rule
	Namespaces []string // of the objects; "*" is all; empty: cluster-scoped objects only
}

// CoversNamespace reports whether objects in a namespace may be read, or in all namespaces
// for "". For cluster-scoped objects, only the rule counts.
func (r ReadRule) CoversNamespace(namespace string) bool {
	return slices.Contains(r.Namespaces, Wildcard) || namespace != "" && slices.Contains(r.Namespaces, namespace)
}

// ServiceAccount is a service account. The zero Account means none.
type ServiceAccount struct{ Namespace, Name string }

// Policy is a GCPolicy or ClusterGCPolicy in force. It is immutable once it is in a
// Set.
type Policy struct {
	Kind       string // kind of its resource; empty: GCPolicy or ClusterGCPolicy
	Namespace  string // empty: a cluster-scoped policy
	Name       string
	Generation int64

	Rules             []Rule
	NamespaceSelector labels.Selector // nil: all
	ObjectSelector    labels.Selector // nil: all

	// Matches evaluates the policy's match conditions on an object. Nil: there are
	// none.
	Matches func(ctx context.Context, object map[string]any) (bool, error)

	// Hooks are the hooks that it implements. If its module is not available, they
	// are unknown: it then has all hooks, but nothing is written in advance for it.
	Hooks        []hostabi.Hook
	HooksUnknown bool

	// Evaluator is nil while the policy is not ready; NotReadyReason then says why. The
	// policy still governs its objects, by OnFault.
	Evaluator      MeteredEvaluator
	NotReadyReason string

	// Loading is true while the policy is not ready because its module is being
	// fetched, compiled or started, which is not a failure. Its objects are kept
	// meanwhile: OnFault is Hold.
	Loading bool

	Module string // such as "ClusterPolicyModule keep-data"; empty: fixed verdicts
	Digest string // of the module; empty: none

	Settings         []byte // a JSON object
	Needs            Needs
	Enforce          bool // false: decisions are recorded only
	OnFault          OnFault
	OverrideExplicit bool // also overrides a client's explicit propagation policy
	Priority         int32
	Overridable      bool // namespaced policies are evaluated first

	ReadRules      []ReadRule
	ServiceAccount ServiceAccount
}

// String returns the name of the policy in records and metrics.
func (p *Policy) String() string {
	kind := p.Kind
	if p.Namespace == "" {
		return cmp.Or(kind, "ClusterGCPolicy") + " " + p.Name
	}
	return cmp.Or(kind, "GCPolicy") + " " + p.Namespace + "/" + p.Name
}

// ReadProblem says why the policy cannot read objects, and what to write instead. It
// is "" if it can. A cluster-scoped policy reads as Gleaner, a namespaced one as
// its service account.
func (p *Policy) ReadProblem() string {
	if p.Namespace == "" || p.ServiceAccount != (ServiceAccount{}) {
		return ""
	}
	return MissingServiceAccount
}

// MissingServiceAccount is the message of ReadProblem for a namespaced policy without a service
// account.
const MissingServiceAccount = "it has no serviceAccount to read the object: set one that may get the object, or set needs: Reference, " +
	"so that the module receives only the object's kind, name and owners"

// HasHook reports whether the policy has a hook, or may have it.
func (p *Policy) HasHook(hook hostabi.Hook) bool { return slices.Contains(p.Hooks, hook) }

// NeedsObjectToMatch reports whether the object itself is needed to decide whether the policy
// governs it.
func (p *Policy) NeedsObjectToMatch() bool {
	return p.ObjectSelector != nil && !p.ObjectSelector.Empty() || p.Matches != nil
}

// selective reports whether the policy governs only some objects of the selected
// resources.
func (p *Policy) selective() bool {
	return p.NeedsObjectToMatch() || p.NamespaceSelector != nil && !p.NamespaceSelector.Empty()
}

// Selects reports whether the policy's rules select a resource.
func (p *Policy) Selects(resource schema.GroupResource) bool {
	selected, _ := p.selects(resource)
	return selected
}

// SelectsGroup reports whether a rule may select a resource of a group.
func (p *Policy) SelectsGroup(group string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return slices.Contains(r.Groups, group) || slices.Contains(r.Groups, Wildcard)
	})
}

// selects reports whether a rule selects a resource, and whether one does by name.
func (p *Policy) selects(resource schema.GroupResource) (selected, byName bool) {
	for _, r := range p.Rules {
		s, n := r.Selects(resource)
		selected, byName = selected || s, byName || n
	}
	return selected, byName
}

// tier is the first criterion of precedence: cluster-scoped policies that are not
// overridable, then namespaced policies, then overridable ones.
func (p *Policy) tier() int {
	switch {
	case p.Namespace != "":
		return 1
	case p.Overridable:
		return 2
	default:
		return 0
	}
}

// rankedPolicy is a policy, and whether it selects a resource by name.
type rankedPolicy struct {
	*Policy
	byName bool
}

// Precedes reports whether a policy is evaluated before another one, for resources that each of them selects by name or not.
func (p *Policy) Precedes(byName bool, other *Policy, otherByName bool) bool {
	return comparePrecedence(rankedPolicy{p, byName}, rankedPolicy{other, otherByName}) < 0
}

// comparePrecedence compares the policies of a resource by precedence.
func comparePrecedence(a, b rankedPolicy) int {
	return cmp.Or(
		cmp.Compare(a.tier(), b.tier()),
		cmp.Compare(b.Priority, a.Priority),
		trueFirst(a.byName, b.byName),
		trueFirst(a.selective(), b.selective()),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// trueFirst orders true before false.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

package policies

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// All stands for every group, or every resource, in a Rule.
const All = "*"

// Rule selects resources as admission rules do. "*" selects all.
type Rule struct {
	Groups    []string // "" is the core group
	Resources []string // in the plural, as in URLs
}

// Selects reports whether a resource is selected, and whether it is by name.
func (r Rule) Selects(resource schema.GroupResource) (selected, byName bool) {
	group := slices.Contains(r.Groups, resource.Group)
	name := slices.Contains(r.Resources, resource.Resource)
	selected = (group || slices.Contains(r.Groups, All)) && (name || slices.Contains(r.Resources, All))
	return selected, selected && group && name
}

// wide reports whether the rule selects resources that it does not name.
func (r Rule) wide() bool { return slices.Contains(r.Groups, All) || slices.Contains(r.Resources, All) }

// Names are the resources that the rule names.
func (r Rule) Names() []schema.GroupResource {
	var names []schema.GroupResource
	for _, group := range r.Groups {
		for _, resource := range r.Resources {
			if group != All && resource != All {
				names = append(names, schema.GroupResource{Group: group, Resource: resource})
			}
		}
	}
	return names
}

// OnFault is what becomes of an object whose policy does not answer as it must.
type OnFault string

// What a fault leads to. Whatever is not Default holds: the zero OnFault, too.
const (
	OnFaultHold    OnFault = "Hold"    // the object is kept, and the question put again
	OnFaultDefault OnFault = "Default" // the next policy is asked
)

// Needs is how much of the object a policy is shown.
type Needs string

// What a policy can need. Whatever is none of the others is the whole object.
const (
	NeedsObject    Needs = "Object"    // costs a read for each decision
	NeedsMetadata  Needs = "Metadata"  // costs one as well, and leaves out all but the metadata
	NeedsReference Needs = "Reference" // costs none: name, namespace, UID, owners and finalizers of garbage collection
)

// Answer is a verdict, and what it took.
type Answer struct {
	Verdict hostabi.Verdict
	Fuel    int64
	Log     string // that the module wrote; it may hold what the object holds
}

// Asker is an Evaluator that says what its answers took.
type Asker interface {
	Evaluator
	Ask(ctx context.Context, request hostabi.Request) (Answer, error)
}

// Reads are resources that a policy may read.
type Reads struct {
	Rule
	Namespaces []string // of the objects; "*" is all, and none is only what has no namespace
}

// Covers reports whether objects in a namespace may be read, or in all of them for
// "". What has no namespace is covered by the rule alone.
func (r Reads) Covers(namespace string) bool {
	return slices.Contains(r.Namespaces, All) || namespace != "" && slices.Contains(r.Namespaces, namespace)
}

// Account is a service account. The zero Account is none.
type Account struct{ Namespace, Name string }

// Policy is one GCPolicy or ClusterGCPolicy as it is in force. It is not changed
// once it is in a Set.
type Policy struct {
	Kind       string // of its resource; empty: GCPolicy, or ClusterGCPolicy
	Namespace  string // empty: of the whole cluster
	Name       string
	Generation int64

	Rules      []Rule
	Namespaces labels.Selector // nil: all
	Objects    labels.Selector // nil: all

	// Matches evaluates the policy's conditions on an object. Nil: it has none.
	Matches func(ctx context.Context, object map[string]any) (bool, error)

	// Hooks are those that it answers. Of one whose module is not there nobody can
	// tell: it counts as if it answered all, but nothing is written ahead for it.
	Hooks  []hostabi.Hook
	Unsure bool

	// Asker is nil while the policy is not ready; NotReady then says why. What it
	// governs it governs all the same, by OnFault.
	Asker    Asker
	NotReady string

	// Loading says that it is not ready because its module is being fetched, compiled or
	// started, which is no failure. What it governs is kept meanwhile: OnFault is Hold.
	Loading bool

	Module string // as in ClusterPolicyModule keep-data; empty: fixed verdicts
	Digest string // of the module; empty: none

	Settings    []byte // a JSON object
	Needs       Needs
	Enforce     bool // or else what it says is recorded, and changes nothing
	OnFault     OnFault
	Override    bool // also what a client asked for explicitly
	Priority    int32
	Overridable bool // namespaced policies go first

	Reads   []Reads
	Account Account
}

// String returns what the policy is called in records and metrics.
func (p *Policy) String() string {
	kind := p.Kind
	if p.Namespace == "" {
		return cmp.Or(kind, "ClusterGCPolicy") + " " + p.Name
	}
	return cmp.Or(kind, "GCPolicy") + " " + p.Namespace + "/" + p.Name
}

// NoReader says why no object can be read for the policy, and what to write instead; "" if
// objects can be read. For a policy of the cluster Gleaner itself reads, for one of a namespace
// its service account.
func (p *Policy) NoReader() string {
	if p.Namespace == "" || p.Account != (Account{}) {
		return ""
	}
	return NoAccount
}

// NoAccount is what NoReader says of a policy of a namespace without a service account.
const NoAccount = "it names no serviceAccount to read the object as: write one that may get it, or needs: Reference, " +
	"with which the module sees the object's kind, name and owners alone"

// Answers reports whether it has something to say to a hook, or might have.
func (p *Policy) Answers(hook hostabi.Hook) bool { return slices.Contains(p.Hooks, hook) }

// Looks reports whether it takes the object itself to tell if the policy governs
// it.
func (p *Policy) Looks() bool {
	return p.Objects != nil && !p.Objects.Empty() || p.Matches != nil
}

// conditional reports whether the policy governs only some objects of what its
// rules select.
func (p *Policy) conditional() bool {
	return p.Looks() || p.Namespaces != nil && !p.Namespaces.Empty()
}

// Selects reports whether the policy's rules select a resource.
func (p *Policy) Selects(resource schema.GroupResource) bool {
	selected, _ := p.selects(resource)
	return selected
}

// selects reports whether a rule selects a resource, and whether one does by name.
func (p *Policy) selects(resource schema.GroupResource) (selected, byName bool) {
	for _, r := range p.Rules {
		s, n := r.Selects(resource)
		selected, byName = selected || s, byName || n
	}
	return selected, byName
}

// tier is the first thing that precedence goes by: the cluster's policies come
// before those of namespaces, but for the ones that say otherwise.
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

// entry is a policy as it stands towards one resource.
type entry struct {
	*Policy
	byName bool
}

// before orders the policies of a resource by precedence.
func before(a, b entry) int {
	return cmp.Or(
		cmp.Compare(a.tier(), b.tier()),
		cmp.Compare(b.Priority, a.Priority),
		first(a.byName, b.byName),
		first(a.conditional(), b.conditional()),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// first puts what has a property before what has not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

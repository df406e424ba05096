// Package monitor lists, for each policy and finalizer in Monitor mode, the objects that it
// would have deleted or kept, according to the operator's records.
//
// It reads no objects, and writes nothing.
package monitor

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// Outcome is what would have happened to an object.
type Outcome string

// The outcomes.
const (
	Deleted           Outcome = "Deleted"
	Kept              Outcome = "Kept"              // without references to absent owners
	KeptForNow        Outcome = "KeptForNow"        // the policy would wait, or the finalizer has not finished
	KeptByFault       Outcome = "KeptByFault"       // the policy's evaluation failed
	Released          Outcome = "Released"          // the finalizer would be removed
	DependentsDeleted Outcome = "DependentsDeleted" // of an object that is deleted
	DependentsKept    Outcome = "DependentsKept"
	Unaffected        Outcome = "Unaffected" // the policy leaves it to the next one, or to the built-in behavior
)

// Decision is the newest decision about an object.
type Decision struct {
	record.Object `json:",inline"`
	Time          metav1.Time `json:"time"`
	Hook          string      `json:"hook,omitempty"`
	Decision      string      `json:"decision,omitempty"`
	Outcome       Outcome     `json:"outcome"`
	Reason        string      `json:"reason,omitempty"` // of the policy, or its fault
}

// Policy is a policy or finalizer in Monitor mode, with its decisions.
type Policy struct {
	Policy    string     `json:"policy"`
	Decisions []Decision `json:"decisions"` // from old to new
}

// Report is the output document of gleaner monitor.
type Report struct {
	Policies []Policy `json:"policies"`

	// Since is when the records begin; none: no leading replica could be queried.
	Since       *metav1.Time           `json:"since,omitempty"`
	Unreachable []replicas.Unreachable `json:"unasked,omitempty"`
}

// FromRecords returns the report of records. The optional name selects one policy or finalizer, such as
// ClusterGCPolicy keep or GCPolicy shop/keep; the optional namespace selects objects.
func FromRecords(found replicas.Records, name, namespace string) Report {
	type key struct {
		policy, hook string
		object       record.Object
	}
	newest := map[key]Decision{}
	for _, e := range found.Entries { // from old to new
		if namespace != "" && e.Object.Namespace != namespace {
			continue
		}
		for _, a := range e.Evaluations {
			if a.Mode != "Monitor" || name != "" && a.Policy != name {
				continue
			}
			o := e.Object
			o.ResourceVersion = ""
			newest[key{a.Policy, a.Hook, o}] = Decision{
				Object: o, Time: metav1.NewTime(e.Time), Hook: a.Hook, Decision: a.Decision, Outcome: outcomeOf(a), Reason: cmp.Or(a.Fault, a.Reason),
			}
		}
	}
	by := map[string][]Decision{}
	for k, d := range newest {
		by[k.policy] = append(by[k.policy], d)
	}
	r := Report{Policies: []Policy{}, Unreachable: found.Unreachable}
	for policy, list := range by {
		slices.SortFunc(list, func(a, b Decision) int {
			return cmp.Or(a.Time.Compare(b.Time.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Hook, b.Hook))
		})
		r.Policies = append(r.Policies, Policy{policy, list})
	}
	slices.SortFunc(r.Policies, func(a, b Policy) int { return cmp.Compare(a.Policy, b.Policy) })
	if since := found.Since; since != nil {
		at := metav1.NewTime(*since)
		r.Since = &at
	}
	return r
}

// outcomeOf returns what would have happened to the object. A fault is assumed to keep it: with
// onFault: Default, the next policy would be evaluated.
func outcomeOf(a record.Evaluation) Outcome {
	switch decision := hostabi.Decision(a.Decision); {
	case a.Fault != "":
		return KeptByFault
	case decision == hostabi.DecisionAbstain:
		return Unaffected
	case a.Hook == string(hostabi.HookFinalize) && decision == hostabi.DecisionDone:
		return Released
	case a.Hook == string(hostabi.HookCollect) && decision == hostabi.DecisionDelete, decision == hostabi.DecisionRemove:
		return Deleted
	case a.Hook == string(hostabi.HookCollect) && decision == hostabi.DecisionOrphan:
		return Kept
	case decision == hostabi.DecisionBackground, decision == hostabi.DecisionForeground:
		return DependentsDeleted
	case decision == hostabi.DecisionOrphan:
		return DependentsKept
	default:
		return KeptForNow
	}
}

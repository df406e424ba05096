package record

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
)

// Query selects entries. The zero Query selects all.
type Query struct {
	Object ObjectQuery
	Owner  ObjectQuery // one of the owners, or of the owners in the chain
	Policy string      // that was evaluated, such as "ClusterGCPolicy keep", or just its name
	Root   types.UID   // of the cascade; the root's own entries are selected, too
	Reason string

	// Would selects entries for which a policy in Monitor mode would have decided something else.
	Would bool
}

// ObjectQuery selects objects. The zero ObjectQuery selects all.
type ObjectQuery struct {
	UID       types.UID
	Group     *string // API group
	Kind      string  // or its resource, in any case
	Namespace *string
	Name      string
}

// Matches reports whether the query selects an object.
func (q ObjectQuery) Matches(o Object) bool {
	return (q.UID == "" || q.UID == o.UID) && (q.Kind == "" || isKind(q.Kind, o.Kind)) && (q.Name == "" || q.Name == o.Name) &&
		(q.Group == nil || *q.Group == groupOf(o.APIVersion)) && (q.Namespace == nil || *q.Namespace == o.Namespace)
}

// isKind reports whether a word names a kind. Its type need not be served.
func isKind(word, kind string) bool {
	if strings.EqualFold(word, kind) {
		return true
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return strings.EqualFold(word, plural.Resource)
}

func groupOf(apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return group
	}
	return ""
}

// Matches reports whether the query selects an entry.
func (q Query) Matches(e Entry) bool {
	return q.MayMatch(e) && (q.Root == "" || q.Root == e.Root || q.Root == e.Object.UID)
}

// MayMatch reports whether the query selects an entry, if the rest of its chain becomes known.
func (q Query) MayMatch(e Entry) bool {
	return q.Object.Matches(e.Object) && (q.Reason == "" || strings.EqualFold(q.Reason, string(e.Reason))) &&
		(q.Root == "" || q.Root == e.Object.UID || len(e.Chain) != 0) &&
		(q.Owner == ObjectQuery{} || e.hasOwner(q.Owner)) && (q.Policy == "" || e.hasPolicy(q.Policy)) && (!q.Would || len(e.Would()) != 0)
}

// NeedsChain reports whether entries must be matched with their whole chains.
func (q Query) NeedsChain() bool { return q.Root != "" || q.Object.UID != "" || q.Object.Name != "" }

func (e Entry) hasOwner(q ObjectQuery) bool {
	return slices.ContainsFunc(e.Owners, func(o Owner) bool { return q.Matches(o.Object) }) ||
		slices.ContainsFunc(e.Chain, func(l Link) bool { return q.Matches(l.Owner.Object) })
}

func (e Entry) hasPolicy(name string) bool {
	is := func(policy string) bool { return policy == name || strings.HasSuffix(policy, " "+name) }
	return is(e.Policy) || slices.ContainsFunc(e.Evaluations, func(a Evaluation) bool { return is(a.Policy) })
}

// The modes of evaluations.
const (
	modeMonitor = "Monitor"
	modeEnforce = "Enforce"
)

// Would returns the evaluations of policies in Monitor mode that would have decided something else,
// or would have failed.
func (e Entry) Would() []Evaluation {
	happened := e.Decided()
	var list []Evaluation
	for _, a := range e.Evaluations {
		if a.Mode == modeMonitor && a.Decision != string(hostabi.DecisionAbstain) && (a.Fault != "" || a.Decision != happened) {
			list = append(list, a)
		}
	}
	return list
}

// Decided returns the decision that took effect: that of the policy that decided, or else what was
// done. It is empty if the object was kept without a decision.
func (e Entry) Decided() string {
	for _, a := range e.Evaluations {
		if a.Mode == modeEnforce && a.Policy == e.Policy {
			return a.Decision
		}
	}
	switch e.Action {
	case None:
		if e.Reason == decide.LeftToCollector || e.Reason == decide.DeletedByCollector {
			return string(hostabi.DecisionDelete)
		}
	case Delete:
		return string(hostabi.DecisionDelete)
	case Propagate:
		return e.Detail
	case RemoveFinalizer:
		if strings.HasPrefix(string(e.Reason), "Finalizer") {
			return string(hostabi.DecisionDone)
		}
		return e.requested()
	case DropReferences, AddFinalizer, Unblock, SaveState, RemoveState: // steps on the way to a decision
	}
	return ""
}

// requested returns the propagation policy that the client requested, if a transcript has it.
func (e Entry) requested() string {
	for _, a := range e.Evaluations {
		if len(a.Exchanges) == 0 {
			continue
		}
		if asked := a.Exchanges[0].Request.RequestedPropagation; asked != hostabi.RequestedUnspecified {
			return string(asked)
		}
		return string(hostabi.DecisionBackground)
	}
	return ""
}

package evaluate

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
)

var ownerStatuses = map[decide.OwnerStatus]hostabi.OwnerStatus{
	decide.Unknown:      hostabi.OwnerUnknown,
	decide.Present:      hostabi.OwnerPresent,
	decide.Absent:       hostabi.OwnerAbsent,
	decide.Waiting:      hostabi.OwnerWaiting,
	decide.Orphaning:    hostabi.OwnerOrphaning,
	decide.Unresolvable: hostabi.OwnerUnresolvable,
}

// Graph has the dependents of objects.
type Graph interface {
	Lookup(graph.ID) (graph.View, bool)
}

// FactsOf returns what is known about an object without reads: the status of its owners is not.
func FactsOf(o graph.Object, dependents Graph) decide.Facts {
	facts := decide.Facts{Object: o}
	for _, ref := range o.Owners {
		facts.Owners = append(facts.Owners, decide.Owner{Reference: ref})
	}
	if view, known := dependents.Lookup(graph.IDOf(o.UID)); known {
		facts.Dependents = view.Dependents
	}
	return facts
}

// request returns the request for an input, with the object's metadata from the graph.
func (c *Evaluator) request(q Input) hostabi.Request {
	o := q.Facts.Object
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	r := hostabi.Request{
		APIVersion: hostabi.Version,
		Hook:       q.Hook,
		Object: hostabi.Object{APIVersion: apiVersion, Kind: kind, Metadata: hostabi.Metadata{
			Name: o.Name, Namespace: o.Namespace, UID: string(o.UID), ResourceVersion: o.ResourceVersion,
		}},
		Dependents:           hostabi.Dependents{Count: q.Facts.Dependents},
		RequestedPropagation: q.RequestedPropagation, UserInfo: q.UserInfo, Retention: q.Retention, Image: q.Image,
		Time:    c.Now().UTC().Truncate(time.Second),
		Attempt: max(q.Attempt, 1),
		Round:   1,
	}
	meta := &r.Object.Metadata
	if o.Orphan {
		meta.Finalizers = append(meta.Finalizers, metav1.FinalizerOrphanDependents)
	}
	if o.Foreground {
		meta.Finalizers = append(meta.Finalizers, metav1.FinalizerDeleteDependents)
	}
	for _, ref := range o.Owners {
		meta.OwnerReferences = append(meta.OwnerReferences, modulecall.Reference(ref))
	}
	for _, owner := range q.Facts.Owners {
		r.Owners = append(r.Owners, hostabi.Owner{Reference: modulecall.Reference(owner.Reference), Status: ownerStatuses[owner.Status]})
	}
	return r
}

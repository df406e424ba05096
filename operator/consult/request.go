package consult

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
)

var standings = map[decide.Standing]hostabi.Standing{
	decide.Unknown:      hostabi.StandingUnknown,
	decide.Present:      hostabi.StandingPresent,
	decide.Absent:       hostabi.StandingAbsent,
	decide.Waiting:      hostabi.StandingWaiting,
	decide.Orphaning:    hostabi.StandingOrphaning,
	decide.Unresolvable: hostabi.StandingUnresolvable,
}

// request puts a question into the words that policies are asked with, by what
// the graph knows of the object.
func (c *Consultant) request(q Question) hostabi.Request {
	o := q.Facts.Object
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	r := hostabi.Request{
		APIVersion: hostabi.Version,
		Hook:       q.Hook,
		Object: hostabi.Object{APIVersion: apiVersion, Kind: kind, Metadata: hostabi.Metadata{
			Name: o.Name, Namespace: o.Namespace, UID: string(o.UID), ResourceVersion: o.ResourceVersion,
		}},
		Dependents: hostabi.Dependents{Count: q.Facts.Dependents},
		Requested:  q.Requested,
		Time:       c.Now().UTC().Truncate(time.Second),
		Attempt:    max(q.Attempt, 1),
		Round:      1,
	}
	meta := &r.Object.Metadata
	if o.Orphan {
		meta.Finalizers = append(meta.Finalizers, metav1.FinalizerOrphanDependents)
	}
	if o.Foreground {
		meta.Finalizers = append(meta.Finalizers, metav1.FinalizerDeleteDependents)
	}
	for _, ref := range o.Owners {
		meta.OwnerReferences = append(meta.OwnerReferences, reference(ref))
	}
	for _, owner := range q.Facts.Owners {
		r.Owners = append(r.Owners, hostabi.Owner{Reference: reference(owner.Reference), Standing: standings[owner.Standing]})
	}
	return r
}

func reference(ref metav1.OwnerReference) hostabi.Reference {
	return hostabi.Reference{
		APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID),
		Controller: ref.Controller, BlockOwnerDeletion: ref.BlockOwnerDeletion,
	}
}

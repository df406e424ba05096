package loop

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

// request puts a situation into the words that policies are asked with.
func request(s decide.Situation, now time.Time) hostabi.Request {
	o := s.Facts.Object
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	r := hostabi.Request{
		APIVersion: hostabi.Version,
		Hook:       hostabi.HookCollect,
		Object: hostabi.Object{APIVersion: apiVersion, Kind: kind, Metadata: hostabi.Metadata{
			Name: o.Name, Namespace: o.Namespace, UID: string(o.UID), ResourceVersion: o.ResourceVersion,
		}},
		Dependents: hostabi.Dependents{Count: s.Facts.Dependents},
		Time:       now,
	}
	meta := &r.Object.Metadata
	if o.Orphan {
		meta.Finalizers = append(meta.Finalizers, metav1.FinalizerOrphanDependents)
	}
	if o.Foreground {
		meta.Finalizers = append(meta.Finalizers, metav1.FinalizerDeleteDependents)
	}
	for _, owner := range s.Facts.Owners {
		ref := reference(owner.Reference)
		meta.OwnerReferences = append(meta.OwnerReferences, ref)
		r.Owners = append(r.Owners, hostabi.Owner{Reference: ref, Standing: standings[owner.Standing]})
	}
	return r
}

func reference(ref metav1.OwnerReference) hostabi.Reference {
	return hostabi.Reference{
		APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID),
		Controller: ref.Controller, BlockOwnerDeletion: ref.BlockOwnerDeletion,
	}
}

// Package candidate makes candidates for retention of the objects of an API: when each was finished, with which others its limits
// apply, and whether retention may touch it at all.
//
// It is pure: objects and what refers to them come in, candidates come out. It reads nothing, and removes nothing.
package candidate

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// Grouping is what the limits by number apply to.
type Grouping string

// The groupings. The zero Grouping is one group of all objects. An object that a grouping has no group for stays.
const (
	ByNamespace Grouping = "Namespace"
	ByOwner     Grouping = "Owner" // the controller; without one, the only owner
	ByLabel     Grouping = "Label" // the value of Label
	ByKey       Grouping = "Key"   // what Key returns
)

// Uses says what uses objects at one time (P-03).
type Uses struct {
	// Complete is set if everything that may use an object has been read. Otherwise no object of a kind that others refer to
	// is unused.
	Complete bool

	// User returns what uses an object of a kind, for people; "" for nothing. It is not called unless Complete is set.
	User func(kind schema.GroupKind, namespace, name string) string
}

// Of returns whether an object is used.
func (u Uses) Of(kind schema.GroupKind, namespace, name string) retain.Use {
	switch {
	case !u.Complete:
		return retain.UseUnknown
	case u.User(kind, namespace, name) != "":
		return retain.Used
	default:
		return retain.Unused
	}
}

// Options say how candidates are made. The zero Options make candidates that are not grouped, and that are not controlled.
type Options struct {
	GroupBy Grouping
	Label   string                                           // for ByLabel
	Key     func(*unstructured.Unstructured) (string, error) // for ByKey

	// Finished returns when an object of a kind that is not built in has finished; nil: those kinds don't finish.
	Finished func(*unstructured.Unstructured) (is bool, at time.Time, err error)

	IncludeControlled bool   // allows the removal of objects that have a controller
	Namespace         string // the operator's namespace: objects in it are never removed
}

// Candidate is an object as a candidate.
type Candidate struct {
	retain.Candidate

	// Referred is set if others refer to objects like this one. Its Use is not known then: it is set for each evaluation.
	Referred bool

	// Unfinished is set if the object is known not to have finished.
	Unfinished bool
}

// Of returns the candidate for an object, which is not changed. The times of its last use and of its detection are the caller's.
func Of(o *unstructured.Unstructured, options Options) Candidate {
	c := Candidate{Referred: isReferredTo(o), Candidate: retain.Candidate{
		ID: string(o.GetUID()), Created: o.GetCreationTimestamp().Time, Terminating: o.GetDeletionTimestamp() != nil,
		Protected: protectedBy(o, options), Pinned: o.GetAnnotations()[KeepAnnotation] == "true",
	}}
	c.FirstSeen = c.Created
	if !c.Referred {
		c.Use = retain.Unused
	}
	group, why := groupOf(o, options)
	if c.Group = group; why != "" && c.Protected == "" {
		c.Protected = why
	}
	is, at, err := finished(o, options)
	if err != nil && c.Protected == "" {
		c.Protected = fmt.Sprintf("it is not known whether it has finished: %s", err)
	}
	c.Unfinished = !is && err == nil
	if c.IsFinished = is && err == nil; c.IsFinished {
		c.Finished = at
	}
	return c
}

// groupOf returns the group of an object, or why it has none.
func groupOf(o *unstructured.Unstructured, options Options) (group, why string) {
	switch options.GroupBy {
	case "":
		return "", ""
	case ByNamespace:
		return o.GetNamespace(), ""
	case ByOwner:
		if ref := metav1.GetControllerOf(o); ref != nil {
			return string(ref.UID), ""
		}
		if refs := o.GetOwnerReferences(); len(refs) == 1 {
			return string(refs[0].UID), ""
		}
		return "", "it has no owner to be grouped by, or more than one"
	case ByLabel:
		value, has := o.GetLabels()[options.Label]
		if !has {
			return "", fmt.Sprintf("it has no label %s to be grouped by", options.Label)
		}
		return o.GetNamespace() + "/" + value, ""
	case ByKey:
		key, err := options.Key(o)
		if err != nil {
			return "", fmt.Sprintf("its group is not known: %s", err)
		}
		return key, ""
	default:
		return "", fmt.Sprintf("its group is not known: grouping %q", options.GroupBy)
	}
}

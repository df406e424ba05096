package graph

import (
	"cmp"
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// ownership is the output document of gleaner graph.
type ownership struct {
	printer.Document `json:",inline"`

	// Objects are in depth-first order: owners before their dependents.
	Objects []ownedObject `json:"objects"`

	// NotShown is the number of objects excluded by --depth and --kind.
	NotShown int `json:"notShown,omitempty"`

	// Folded is the number of objects that --fold has left out.
	Folded int `json:"folded,omitempty"`

	// Unread lists the types that could not be read, with the reason.
	Unread []string `json:"unread,omitempty"`

	dump graph.Dump
}

// ownedObject is an object with owners or dependents, or a missing owner.
type ownedObject struct {
	record.Object `json:",inline"`

	Parent types.UID  `json:"parent,omitempty"` // in the tree: its first owner
	Owners []ownerRef `json:"owners,omitempty"`

	Terminating string       `json:"terminating,omitempty"` // Background, Foreground or Orphan
	Since       *metav1.Time `json:"terminatingSince,omitempty"`
	Finalizers  []string     `json:"finalizers,omitempty"` // except those of garbage collection

	// Missing is the standing of an owner that was not among the objects read.
	Missing string `json:"missing,omitempty"`
	Because string `json:"because,omitempty"`

	Target bool `json:"asked,omitempty"` // it is the target of the command

	// Similar is the number of similar objects of the same owner that --fold has left out.
	Similar int `json:"similar,omitempty"`

	depth int
}

// ownerRef is one owner reference.
type ownerRef struct {
	UID      types.UID `json:"uid"`
	Blocks   bool      `json:"blocks,omitempty"`   // it blocks the foreground deletion of the owner
	Standing string    `json:"standing,omitempty"` // of an owner that does not match the reference
	Because  string    `json:"because,omitempty"`

	name string
}

// ownershipOf returns the ownership of the target.
func ownershipOf(ctx context.Context, a *input.Input) *ownership {
	d := targetDump(a)
	objects := map[types.UID]*ownedObject{}
	for _, n := range d.Nodes {
		o := &ownedObject{Object: record.Object{APIVersion: n.APIVersion, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name, UID: n.UID}}
		o.describe(a, n)
		objects[n.UID] = o
	}
	for uid, o := range objects {
		if o.Missing == "" {
			o.addOwners(ctx, a, uid, objects)
		}
	}
	result := &ownership{Document: printer.DocumentOf("Ownership"), dump: d, Objects: depthFirst(objects)}
	result.Unread = survey.Lines(a.Survey.Unread)
	return result
}

// describe fills in the state of an object.
func (o *ownedObject) describe(a *input.Input, n graph.DumpNode) {
	item, seen := a.Survey.Items[graph.IDOf(n.UID)]
	if !seen {
		o.Missing = decide.Unknown.String()
		return
	}
	o.Target = a.Target.Object != nil && a.Target.Object.GetUID() == n.UID
	for _, f := range item.Meta.Finalizers {
		if f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents {
			o.Finalizers = append(o.Finalizers, f)
		}
	}
	if !n.Terminating {
		return
	}
	o.Since = item.Meta.DeletionTimestamp
	switch {
	case n.Orphan:
		o.Terminating = "Orphan"
	case n.Foreground:
		o.Terminating = "Foreground"
	default:
		o.Terminating = "Background"
	}
}

// addOwners adds the object's owner references, and the standing of missing owners.
func (o *ownedObject) addOwners(ctx context.Context, a *input.Input, uid types.UID, objects map[types.UID]*ownedObject) {
	id := graph.IDOf(uid)
	refs := a.Survey.Items[id].Meta.OwnerReferences
	gone := slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool {
		owner := objects[ref.UID]
		return owner == nil || owner.Missing != "" || owner.Kind != ref.Kind || owner.Name != ref.Name || owner.Namespace != "" && owner.Namespace != o.Namespace
	})
	var facts decide.Facts
	if gone { // otherwise all owners are present
		facts, _ = a.Survey.Facts(ctx, id)
	}
	for i, ref := range refs {
		owner := ownerRef{UID: ref.UID, Blocks: ptr.Deref(ref.BlockOwnerDeletion, false), name: ref.Kind + "/" + ref.Name}
		missing := objects[ref.UID]
		if i < len(facts.Owners) && (missing == nil || facts.Owners[i].Status != decide.Present || missing.Missing != "") {
			owner.Standing, owner.Because = facts.Owners[i].Status.String(), facts.Owners[i].Message
			if missing != nil && missing.Missing == decide.Unknown.String() {
				missing.Missing, missing.Because = owner.Standing, owner.Because
			}
		}
		o.Owners = append(o.Owners, owner)
	}
}

// depthFirst returns the objects as a tree in depth-first order, each below its first owner.
func depthFirst(objects map[types.UID]*ownedObject) []ownedObject {
	below := map[types.UID][]*ownedObject{}
	var roots []*ownedObject
	for _, o := range objects {
		if len(o.Owners) == 0 || objects[o.Owners[0].UID] == nil {
			roots = append(roots, o)
			continue
		}
		below[o.Owners[0].UID] = append(below[o.Owners[0].UID], o)
	}
	var order []ownedObject
	done := map[types.UID]bool{}
	var walk func(o *ownedObject, parent types.UID, depth int)
	walk = func(o *ownedObject, parent types.UID, depth int) {
		if done[o.UID] {
			return
		}
		done[o.UID] = true
		o.Parent, o.depth = parent, depth
		order = append(order, *o)
		slices.SortFunc(below[o.UID], byName)
		for _, next := range below[o.UID] {
			walk(next, o.UID, depth+1)
		}
	}
	slices.SortFunc(roots, byName)
	for _, o := range roots {
		walk(o, "", 0)
	}
	var circles []*ownedObject // objects that own each other have no root
	for uid, o := range objects {
		if !done[uid] {
			circles = append(circles, o)
		}
	}
	slices.SortFunc(circles, byName)
	for _, o := range circles {
		walk(o, "", 0)
	}
	return order
}

func byName(a, b *ownedObject) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

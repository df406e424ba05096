package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// ownership is the document of gleaner graph.
type ownership struct {
	kubectl.Document `json:",inline"`

	// Objects are in the order of a tree: each before what is below it.
	Objects []ownedObject `json:"objects"`

	// NotShown is how many objects --depth and --kind leave out.
	NotShown int `json:"notShown,omitempty"`

	// Unread are the types whose objects are not known, with the reason.
	Unread []string `json:"unread,omitempty"`

	dump graph.Dump
}

// ownedObject is an object that owns another one or is owned, or a missing owner.
type ownedObject struct {
	record.Object `json:",inline"`

	Parent types.UID `json:"parent,omitempty"` // what it is below in the tree: its first owner
	Owners []ownerOf `json:"owners,omitempty"`

	Terminating string       `json:"terminating,omitempty"` // Background, Foreground or Orphan
	Since       *metav1.Time `json:"terminatingSince,omitempty"`
	Finalizers  []string     `json:"finalizers,omitempty"` // all but those of garbage collection

	// Missing says of an owner that was not among what was read what is known of it.
	Missing string `json:"missing,omitempty"`
	Because string `json:"because,omitempty"`

	Asked bool `json:"asked,omitempty"` // it is the object that was asked about

	depth int
}

// ownerOf is one owner reference.
type ownerOf struct {
	UID      types.UID `json:"uid"`
	Blocks   bool      `json:"blocks,omitempty"`   // the owner's deletion in the foreground waits for it
	Standing string    `json:"standing,omitempty"` // of an owner that is not there as the reference says
	Because  string    `json:"because,omitempty"`

	name string
}

// ownershipOf says who owns whom, of what was asked about.
func ownershipOf(ctx context.Context, a *asked) *ownership {
	d := dumpOf(a)
	objects := map[types.UID]*ownedObject{}
	for _, n := range d.Nodes {
		o := &ownedObject{Object: record.Object{APIVersion: n.APIVersion, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name, UID: n.UID}}
		o.describe(a, n)
		objects[n.UID] = o
	}
	for uid, o := range objects {
		if o.Missing == "" {
			o.own(ctx, a, uid, objects)
		}
	}
	result := &ownership{Document: kubectl.DocumentOf("Ownership"), dump: d, Objects: inOrder(objects)}
	result.Unread = survey.Lines(a.survey.Unread)
	return result
}

// describe says how an object is.
func (o *ownedObject) describe(a *asked, n graph.DumpNode) {
	item, seen := a.survey.Items[graph.IDOf(n.UID)]
	if !seen {
		o.Missing = decide.Unknown.String()
		return
	}
	o.Asked = a.target.Object != nil && a.target.Object.GetUID() == n.UID
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

// own takes in an object's references, and what they tell of owners that are
// missing.
func (o *ownedObject) own(ctx context.Context, a *asked, uid types.UID, objects map[types.UID]*ownedObject) {
	id := graph.IDOf(uid)
	refs := a.survey.Items[id].Meta.OwnerReferences
	gone := slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool {
		owner := objects[ref.UID]
		return owner == nil || owner.Missing != "" || owner.Kind != ref.Kind || owner.Name != ref.Name || owner.Namespace != "" && owner.Namespace != o.Namespace
	})
	var facts decide.Facts
	if gone { // or there is nothing to be found out
		facts, _ = a.survey.Facts(ctx, id)
	}
	for i, ref := range refs {
		owner := ownerOf{UID: ref.UID, Blocks: ptr.Deref(ref.BlockOwnerDeletion, false), name: ref.Kind + "/" + ref.Name}
		missing := objects[ref.UID]
		if i < len(facts.Owners) && (missing == nil || facts.Owners[i].Standing != decide.Present || missing.Missing != "") {
			owner.Standing, owner.Because = facts.Owners[i].Standing.String(), facts.Owners[i].Reason
			if missing != nil && missing.Missing == decide.Unknown.String() {
				missing.Missing, missing.Because = owner.Standing, owner.Because
			}
		}
		o.Owners = append(o.Owners, owner)
	}
}

// inOrder makes a tree of objects: each is below the first of its owners.
func inOrder(objects map[types.UID]*ownedObject) []ownedObject {
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
	var circles []*ownedObject // objects that own each other are below none
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

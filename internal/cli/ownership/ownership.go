// Package ownership makes what was read of a cluster a tree of owners and dependents.
//
// It reads nothing itself, except owners that were not among the objects read.
package ownership

import (
	"cmp"
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/candidate"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// Ownership is the output document of gleaner graph.
type Ownership struct {
	printer.Document `json:",inline"`

	// Objects are in depth-first order: owners before their dependents.
	Objects []Object `json:"objects"`

	// NotShown is the number of objects excluded by --depth and --kind.
	NotShown int `json:"notShown,omitempty"`

	// Folded is the number of objects that --fold has left out.
	Folded int `json:"folded,omitempty"`

	// Unread lists the types that could not be read, with the reason.
	Unread []string `json:"unread,omitempty"`

	// Dump is the part of the graph that Objects are of.
	Dump graph.Dump `json:"-"`
}

// Object is an object with owners or dependents, or a missing owner.
type Object struct {
	record.Object `json:",inline"`

	Parent types.UID `json:"parent,omitempty"` // in the tree: its first owner
	Owners []Owner   `json:"owners,omitempty"`

	Terminating string       `json:"terminating,omitempty"` // Background, Foreground or Orphan
	Since       *metav1.Time `json:"terminatingSince,omitempty"`
	Finalizers  []string     `json:"finalizers,omitempty"` // except those of garbage collection

	// Missing is the standing of an owner that was not among the objects read.
	Missing string `json:"missing,omitempty"`
	Because string `json:"because,omitempty"`

	Held bool `json:"held,omitempty"` // Gleaner keeps it until its policies have decided
	Kept bool `json:"kept,omitempty"` // an annotation keeps it from retention policies

	Target bool `json:"asked,omitempty"` // it is the target of the command

	// Similar is the number of similar objects of the same owner that --fold has left out.
	Similar int `json:"similar,omitempty"`

	// Labels are shared with what was read.
	Labels map[string]string `json:"-"`

	// Depth is the number of owners above it in the tree.
	Depth int `json:"-"`
}

// Owner is one owner reference.
type Owner struct {
	UID      types.UID `json:"uid"`
	Blocks   bool      `json:"blocks,omitempty"`   // it blocks the foreground deletion of the owner
	Standing string    `json:"standing,omitempty"` // of an owner that does not match the reference
	Because  string    `json:"because,omitempty"`

	// Name is Kind/name of the owner.
	Name string `json:"-"`
}

// DumpOf returns the part of the graph with the objects of a namespace; of all, if it is empty. Of a cluster, only those that the
// survey is of were read.
func DumpOf(s *survey.Survey, namespace string) graph.Dump {
	d := s.Graph.Dump()
	if namespace == "" || !s.FromFiles {
		return d
	}
	var in []types.UID
	for _, n := range d.Nodes {
		if n.Namespace == namespace {
			in = append(in, n.UID)
		}
	}
	if len(in) == 0 {
		return graph.Dump{}
	}
	return s.Graph.Dump(in...)
}

// Of returns the ownership of the objects of a dump, which is a part of the survey's graph. If one of them is the
// target, its UID says which.
func Of(ctx context.Context, s *survey.Survey, d graph.Dump, target types.UID) *Ownership {
	objects := map[types.UID]*Object{}
	for _, n := range d.Nodes {
		o := &Object{Object: record.Object{APIVersion: n.APIVersion, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name, UID: n.UID}}
		o.describe(s, n, target)
		objects[n.UID] = o
	}
	for uid, o := range objects {
		if o.Missing == "" {
			o.addOwners(ctx, s, uid, objects)
		}
	}
	result := &Ownership{Document: printer.DocumentOf("Ownership"), Dump: d, Objects: depthFirst(objects)}
	result.Unread = survey.Lines(s.Unread)
	return result
}

// Clone returns a copy. Limiting or folding it does not change the original.
func (o *Ownership) Clone() *Ownership {
	clone := *o
	clone.Objects = slices.Clone(o.Objects)
	clone.Dump.Nodes, clone.Dump.Edges = slices.Clone(o.Dump.Nodes), slices.Clone(o.Dump.Edges)
	return &clone
}

// describe fills in the state of an object.
func (o *Object) describe(s *survey.Survey, n graph.DumpNode, target types.UID) {
	item, seen := s.Items[graph.IDOf(n.UID)]
	if !seen {
		o.Missing = decide.Unknown.String()
		return
	}
	o.Target = n.UID == target
	for _, f := range item.Meta.Finalizers {
		if f != metav1.FinalizerDeleteDependents && f != metav1.FinalizerOrphanDependents {
			o.Finalizers = append(o.Finalizers, f)
		}
	}
	o.Labels = item.Meta.Labels
	o.Held = slices.Contains(item.Meta.Finalizers, graph.Hold)
	o.Kept = item.Meta.Annotations[candidate.KeepAnnotation] == "true"
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
func (o *Object) addOwners(ctx context.Context, s *survey.Survey, uid types.UID, objects map[types.UID]*Object) {
	id := graph.IDOf(uid)
	refs := s.Items[id].Meta.OwnerReferences
	gone := slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool {
		owner := objects[ref.UID]
		return owner == nil || owner.Missing != "" || owner.Kind != ref.Kind || owner.Name != ref.Name || owner.Namespace != "" && owner.Namespace != o.Namespace
	})
	var facts decide.Facts
	if gone { // otherwise all owners are present
		facts, _ = s.Facts(ctx, id)
	}
	for i, ref := range refs {
		owner := Owner{UID: ref.UID, Blocks: ptr.Deref(ref.BlockOwnerDeletion, false), Name: ref.Kind + "/" + ref.Name}
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
func depthFirst(objects map[types.UID]*Object) []Object {
	below := map[types.UID][]*Object{}
	var roots []*Object
	for _, o := range objects {
		if len(o.Owners) == 0 || objects[o.Owners[0].UID] == nil {
			roots = append(roots, o)
			continue
		}
		below[o.Owners[0].UID] = append(below[o.Owners[0].UID], o)
	}
	var order []Object
	done := map[types.UID]bool{}
	var walk func(o *Object, parent types.UID, depth int)
	walk = func(o *Object, parent types.UID, depth int) {
		if done[o.UID] {
			return
		}
		done[o.UID] = true
		o.Parent, o.Depth = parent, depth
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
	var circles []*Object // objects that own each other have no root
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

func byName(a, b *Object) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

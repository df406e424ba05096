package ownership

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Limits select objects. The zero value selects all.
type Limits struct {
	// Depth is the maximum number of owner references between an object and the target, or else the nearest object without
	// owners.
	Depth int

	// Kinds are those that are selected, with what owns them, and the target.
	Kinds map[schema.GroupKind]bool
}

// Limit removes the objects that are not selected.
func (o *Ownership) Limit(l Limits) {
	shown := o.withinDepth(l.Depth)
	if len(l.Kinds) != 0 {
		o.limitKinds(shown, l.Kinds)
	}
	if len(shown) == len(o.Objects) {
		return
	}
	kept := map[types.UID]*Object{}
	for i := range o.Objects {
		if object := &o.Objects[i]; shown[object.UID] {
			kept[object.UID] = object
		}
	}
	o.NotShown = len(o.Objects) - len(kept)
	o.Objects = depthFirst(kept)
	o.Dump.Nodes = slices.DeleteFunc(o.Dump.Nodes, func(n graph.DumpNode) bool { return !shown[n.UID] })
	o.Dump.Edges = slices.DeleteFunc(o.Dump.Edges, func(e graph.DumpEdge) bool { return !shown[e.Dependent] || !shown[e.Owner] })
}

// withinDepth returns the objects within a depth.
func (o *Ownership) withinDepth(limit int) map[types.UID]bool {
	next := map[types.UID][]types.UID{} // both ways
	exists, named := map[types.UID]bool{}, []types.UID(nil)
	var roots []types.UID
	for _, object := range o.Objects {
		exists[object.UID] = true
		if object.Target {
			named = append(named, object.UID)
		}
		if object.Depth == 0 {
			roots = append(roots, object.UID)
		}
	}
	if limit == 0 {
		return exists
	}
	for _, object := range o.Objects {
		for _, owner := range object.Owners {
			next[owner.UID] = append(next[owner.UID], object.UID)
			next[object.UID] = append(next[object.UID], owner.UID)
		}
	}
	from := roots
	if named != nil {
		from = named
	}
	shown := map[types.UID]bool{}
	for distance := 0; distance <= limit; distance++ {
		var further []types.UID
		for _, uid := range from {
			if exists[uid] && !shown[uid] {
				shown[uid] = true
				further = append(further, next[uid]...)
			}
		}
		from = further
	}
	return shown
}

// limitKinds keeps objects of the kinds, their owners, and the target.
func (o *Ownership) limitKinds(shown map[types.UID]bool, kinds map[schema.GroupKind]bool) {
	by := map[types.UID]Object{}
	for _, object := range o.Objects {
		by[object.UID] = object
	}
	kept := map[types.UID]bool{}
	var keep func(uid types.UID)
	keep = func(uid types.UID) {
		if !shown[uid] || kept[uid] {
			return
		}
		kept[uid] = true
		for _, owner := range by[uid].Owners {
			keep(owner.UID)
		}
	}
	for _, object := range o.Objects {
		if object.Target || kinds[schema.FromAPIVersionAndKind(object.APIVersion, object.Kind).GroupKind()] {
			keep(object.UID)
		}
	}
	for uid := range shown {
		if !kept[uid] {
			delete(shown, uid)
		}
	}
}

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
		o.withOwners(shown, func(object *Object) bool {
			return object.Target || l.Kinds[schema.FromAPIVersionAndKind(object.APIVersion, object.Kind).GroupKind()]
		})
	}
	o.leave(shown)
}

// Keep removes the objects that don't match, except owners of those that do.
func (o *Ownership) Keep(matches func(*Object) bool) {
	shown := o.withinDepth(0)
	o.withOwners(shown, matches)
	o.leave(shown)
}

// leave removes the objects that are not shown.
func (o *Ownership) leave(shown map[types.UID]bool) {
	if len(shown) == len(o.Objects) {
		return
	}
	kept := map[types.UID]*Object{}
	for i := range o.Objects {
		if object := &o.Objects[i]; shown[object.UID] {
			kept[object.UID] = object
		}
	}
	o.NotShown += len(o.Objects) - len(kept)
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

// withOwners leaves the objects that match, and their owners.
func (o *Ownership) withOwners(shown map[types.UID]bool, matches func(*Object) bool) {
	by := make(map[types.UID]*Object, len(o.Objects))
	for i := range o.Objects {
		by[o.Objects[i].UID] = &o.Objects[i]
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
	for uid, object := range by {
		if matches(object) {
			keep(uid)
		}
	}
	for uid := range shown {
		if !kept[uid] {
			delete(shown, uid)
		}
	}
}

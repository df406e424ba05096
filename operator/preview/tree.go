package preview

import (
	"slices"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// tree contains the objects that a deletion may affect: the deleted objects and their dependents, the
// objects in a namespace, and the custom resources of a definition. Each object is below
// the first one that leads to it.
type tree struct {
	roots  []graph.ID
	order  []graph.ID // from the roots down, parents first
	parent map[graph.ID]graph.ID
	depth  map[graph.ID]int
}

// isRoot reports whether the client deletes the object.
func (t tree) isRoot(id graph.ID) bool { return slices.Contains(t.roots, id) }

func (t tree) has(id graph.ID) bool {
	_, ok := t.depth[id]
	return ok
}

// buildTree returns the tree of objects. One that is below another is there.
func (p *simulation) buildTree(roots []*object) tree {
	t := tree{parent: map[graph.ID]graph.ID{}, depth: map[graph.ID]int{}}
	owned := p.owned()
	below := func(o *object) []*object {
		list := slices.Clone(owned[o.id])
		slices.SortFunc(list, compare)
		return list
	}
	var grow func(o *object, depth int)
	grow = func(o *object, depth int) {
		t.order = append(t.order, o.id)
		for _, d := range below(o) {
			if !t.has(d.id) {
				t.parent[d.id], t.depth[d.id] = o.id, depth+1
				grow(d, depth+1)
			}
		}
	}
	for _, root := range roots {
		t.roots = append(t.roots, root.id)
		if t.has(root.id) {
			continue
		}
		t.depth[root.id] = 0
		grow(root, 0)
		switch {
		case root.contents:
			t.addContents(root, p.contents(root.Name), owned, grow)
		case root.resource.GroupKind() == definitions:
			t.addContents(root, p.instances(root), owned, grow)
		}
	}
	return t
}

// addContents adds objects below the root that are deleted with it. Objects without an owner
// among the others come first, so that the rest is below its owners.
func (t *tree) addContents(root *object, inside []*object, owned map[graph.ID][]*object, grow func(*object, int)) {
	among := map[graph.ID]bool{}
	for _, o := range inside {
		for _, d := range owned[o.id] {
			among[d.id] = true
		}
	}
	for _, owner := range []bool{false, true} { // cycles of owners come last
		for _, o := range inside {
			if among[o.id] == owner && !t.has(o.id) {
				t.parent[o.id], t.depth[o.id] = root.id, 1
				grow(o, 1)
			}
		}
	}
}

// owned returns the objects by owner.
func (p *simulation) owned() map[graph.ID][]*object {
	owned := map[graph.ID][]*object{}
	for _, o := range p.cluster.objects {
		var done []graph.ID
		for _, ref := range o.OwnerReferences {
			if owner := graph.IDOf(ref.UID); !slices.Contains(done, owner) {
				owned[owner], done = append(owned[owner], o), append(done, owner)
			}
		}
	}
	return owned
}

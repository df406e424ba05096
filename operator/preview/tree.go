package preview

import (
	"slices"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// tree contains the objects that a deletion may affect: the object and its dependents, the
// objects in a namespace, and the custom resources of a definition. Each object is below
// the first one that leads to it.
type tree struct {
	root   graph.ID
	order  []graph.ID // from the root down, parents first
	parent map[graph.ID]graph.ID
	depth  map[graph.ID]int
}

func (t tree) has(id graph.ID) bool {
	_, ok := t.depth[id]
	return ok
}

// buildTree returns the tree of an object.
func (p *simulation) buildTree(root *object) tree {
	t := tree{root: root.id, parent: map[graph.ID]graph.ID{}, depth: map[graph.ID]int{root.id: 0}}
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
	grow(root, 0)
	switch {
	case root.contents:
		t.addContents(root, p.contents(root.Name), owned, grow)
	case root.resource.GroupKind() == definitions:
		t.addContents(root, p.instances(root), owned, grow)
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

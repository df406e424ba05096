package preview

import (
	"slices"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// tree is what a deletion may concern: the object, what it owns, what is in it if it
// is a namespace, and what is of it if it is a type; each below the first that it was
// come to by.
type tree struct {
	root   graph.ID
	order  []graph.ID // from the root down, each before what is below it
	parent map[graph.ID]graph.ID
	depth  map[graph.ID]int
}

func (t tree) has(id graph.ID) bool {
	_, ok := t.depth[id]
	return ok
}

// plant makes the tree of an object.
func (p *preview) plant(root *object) tree {
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
		t.adopt(root, p.contents(root.Name), owned, grow)
	case root.resource.GroupKind() == definitions:
		t.adopt(root, p.instances(root), owned, grow)
	}
	return t
}

// adopt puts objects below the root that go with it: those first that have no owner
// among the others, so that the rest is below its owners.
func (t *tree) adopt(root *object, inside []*object, owned map[graph.ID][]*object, grow func(*object, int)) {
	among := map[graph.ID]bool{}
	for _, o := range inside {
		for _, d := range owned[o.id] {
			among[d.id] = true
		}
	}
	for _, owner := range []bool{false, true} { // at last those that own each other
		for _, o := range inside {
			if among[o.id] == owner && !t.has(o.id) {
				t.parent[o.id], t.depth[o.id] = root.id, 1
				grow(o, 1)
			}
		}
	}
}

// owned are the objects by their owners.
func (p *preview) owned() map[graph.ID][]*object {
	owned := map[graph.ID][]*object{}
	for _, o := range p.world.objects {
		var done []graph.ID
		for _, ref := range o.OwnerReferences {
			if owner := graph.IDOf(ref.UID); !slices.Contains(done, owner) {
				owned[owner], done = append(owned[owner], o), append(done, owner)
			}
		}
	}
	return owned
}

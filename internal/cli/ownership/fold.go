package ownership

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// minFolded is the number of similar objects from which on they are folded.
const minFolded = 3

// Fold leaves the first of similar objects of one owner, with the number of the others. Objects are similar if
// they have the same kind, namespace, state and finalizers, and their dependents are similar in turn. The target, missing
// owners, and objects with several owners or that are further owners of others, are similar to none.
func (o *Ownership) Fold() {
	shapes := o.shapes()
	similar := map[foldKey][]*Object{}
	for i := range o.Objects {
		object := &o.Objects[i]
		key := foldKey{object.Parent, shapes[object.UID]}
		similar[key] = append(similar[key], object)
	}
	kept := map[types.UID]*Object{}
	for i := range o.Objects { // owners come first
		object := &o.Objects[i]
		group := similar[foldKey{object.Parent, shapes[object.UID]}]
		if _, shown := kept[object.Parent]; object.Parent != "" && !shown || len(group) >= minFolded && group[0] != object {
			continue
		}
		if len(group) >= minFolded {
			object.Similar = len(group) - 1
		}
		kept[object.UID] = object
	}
	o.Folded = len(o.Objects) - len(kept)
	o.Objects = depthFirst(kept)
}

type foldKey struct {
	parent types.UID
	shape  int
}

// shapes numbers the shapes of objects with all that is below them: similar objects have the same one.
func (o *Ownership) shapes() map[types.UID]int {
	further := map[types.UID]bool{}
	for _, object := range o.Objects {
		for i, owner := range object.Owners {
			if i > 0 || owner.UID != object.Parent {
				further[owner.UID] = true
			}
		}
	}
	numbers, shapes, below := map[string]int{}, map[types.UID]int{}, map[types.UID]map[int]int{}
	for i := len(o.Objects) - 1; i >= 0; i-- { // dependents come last
		object := &o.Objects[i]
		text := string(object.UID)
		if !object.Target && object.Missing == "" && len(object.Owners) < 2 && !further[object.UID] {
			blocks := len(object.Owners) == 1 && object.Owners[0].Blocks
			text = fmt.Sprintf("%q %q %q %q %q %t %v", object.APIVersion, object.Kind, object.Namespace, object.State(), strings.Join(object.Finalizers, ","), blocks, below[object.UID])
		}
		shape, known := numbers[text]
		if !known {
			shape = len(numbers)
			numbers[text] = shape
		}
		shapes[object.UID] = shape
		if below[object.Parent] == nil {
			below[object.Parent] = map[int]int{}
		}
		below[object.Parent][shape]++
	}
	return shapes
}

package main

import (
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// graphFilter says which part of an ownership is shown.
type graphFilter struct {
	depth int      // 0: any
	kinds []string // none: all
}

func (f *graphFilter) addTo(flags *pflag.FlagSet) {
	flags.IntVar(&f.depth, "depth", 0, "maximum `number` of owner references between an object and the one that is named, or else the nearest without owners. Default 0, which shows all")
	flags.StringSliceVar(&f.kinds, "kind", nil, "`KIND[,KIND]`: show only objects of these kinds, and what owns them")
}

func (f *graphFilter) validate() error {
	if f.depth < 0 {
		return kubectl.Usage("--depth=%d: use 1 or more, or 0 for all", f.depth)
	}
	if slices.Contains(f.kinds, "") {
		return kubectl.Usage("--kind has an empty kind: write kinds as --kind=deployment,pod")
	}
	return nil
}

// groupKinds are the kinds by the names that people use.
func (f *graphFilter) groupKinds(a *asked, flags *kubectl.Flags) (map[schema.GroupKind]bool, error) {
	kinds := map[schema.GroupKind]bool{}
	for _, word := range f.kinds {
		var mapping *meta.RESTMapping
		var err error
		if a.config != nil {
			mapping, err = flags.Mapping(word)
		} else {
			mapping, err = kubectl.MappingIn(a.survey.Mapper, word)
		}
		if err != nil {
			return nil, err
		}
		kinds[mapping.GroupVersionKind.GroupKind()] = true
	}
	return kinds, nil
}

// apply leaves out of the ownership what is not to be shown.
func (f *graphFilter) apply(o *ownership, kinds map[schema.GroupKind]bool) {
	shown := f.near(o)
	if len(kinds) != 0 {
		o.limit(shown, kinds)
	}
	if len(shown) == len(o.Objects) {
		return
	}
	kept := map[types.UID]*ownedObject{}
	for i := range o.Objects {
		if object := &o.Objects[i]; shown[object.UID] {
			kept[object.UID] = object
		}
	}
	o.NotShown = len(o.Objects) - len(kept)
	o.Objects = inOrder(kept)
	o.dump.Nodes = slices.DeleteFunc(o.dump.Nodes, func(n graph.DumpNode) bool { return !shown[n.UID] })
	o.dump.Edges = slices.DeleteFunc(o.dump.Edges, func(e graph.DumpEdge) bool { return !shown[e.Dependent] || !shown[e.Owner] })
}

// near are the objects within the depth.
func (f *graphFilter) near(o *ownership) map[types.UID]bool {
	next := map[types.UID][]types.UID{} // both ways
	exists, named := map[types.UID]bool{}, []types.UID(nil)
	var roots []types.UID
	for _, object := range o.Objects {
		exists[object.UID] = true
		if object.Asked {
			named = append(named, object.UID)
		}
		if object.depth == 0 {
			roots = append(roots, object.UID)
		}
	}
	if f.depth == 0 {
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
	for distance := 0; distance <= f.depth; distance++ {
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

// limit leaves those of the kinds, what owns them, and the object that was asked about.
func (o *ownership) limit(shown map[types.UID]bool, kinds map[schema.GroupKind]bool) {
	by := map[types.UID]ownedObject{}
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
		if object.Asked || kinds[schema.FromAPIVersionAndKind(object.APIVersion, object.Kind).GroupKind()] {
			keep(object.UID)
		}
	}
	for uid := range shown {
		if !kept[uid] {
			delete(shown, uid)
		}
	}
}

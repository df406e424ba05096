package graph

import (
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// filter selects the part of an ownership to show.
type filter struct {
	depth int      // 0: any
	kinds []string // none: all
	fold  bool     // similar dependents of one owner
}

func (f *filter) addTo(flags *pflag.FlagSet) {
	flags.IntVar(&f.depth, "depth", 0, "maximum `number` of owner references between an object and the named object, or else the nearest object without owners. Default 0, unlimited")
	flags.StringSliceVar(&f.kinds, "kind", nil, "`KIND[,KIND]`: show only objects of these kinds, and what owns them")
	flags.BoolVar(&f.fold, "fold", false, "show three or more similar dependents of an owner as one: of the same kind, with the same state, finalizers and dependents")
}

func (f *filter) validate(output string) error {
	if f.depth < 0 {
		return exit.Usagef("--depth=%d: use 1 or more, or 0 for all", f.depth)
	}
	if slices.Contains(f.kinds, "") {
		return exit.Usagef("--kind has an empty kind: write kinds as --kind=deployment,pod")
	}
	if f.fold && output == "dot" {
		return exit.Usagef("--fold with -o dot: use -o svg or -o mermaid, or leave out --fold")
	}
	return nil
}

// groupKinds resolves the values of --kind.
func (f *filter) groupKinds(a *input.Input, flags *kubectl.Flags) (map[schema.GroupKind]bool, error) {
	kinds := map[schema.GroupKind]bool{}
	for _, word := range f.kinds {
		var mapping *meta.RESTMapping
		var err error
		if a.Config != nil {
			mapping, err = flags.Mapping(word)
		} else {
			mapping, err = kubectl.MappingIn(a.Survey.Mapper, word)
		}
		if err != nil {
			return nil, err
		}
		kinds[mapping.GroupVersionKind.GroupKind()] = true
	}
	return kinds, nil
}

// apply removes the objects that the filter excludes.
func (f *filter) apply(o *ownership, kinds map[schema.GroupKind]bool) {
	shown := f.withinDepth(o)
	if len(kinds) != 0 {
		o.limitKinds(shown, kinds)
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
	o.Objects = depthFirst(kept)
	o.dump.Nodes = slices.DeleteFunc(o.dump.Nodes, func(n graph.DumpNode) bool { return !shown[n.UID] })
	o.dump.Edges = slices.DeleteFunc(o.dump.Edges, func(e graph.DumpEdge) bool { return !shown[e.Dependent] || !shown[e.Owner] })
}

// withinDepth returns the objects within the depth.
func (f *filter) withinDepth(o *ownership) map[types.UID]bool {
	next := map[types.UID][]types.UID{} // both ways
	exists, named := map[types.UID]bool{}, []types.UID(nil)
	var roots []types.UID
	for _, object := range o.Objects {
		exists[object.UID] = true
		if object.Target {
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

// limitKinds keeps objects of the kinds, their owners, and the target.
func (o *ownership) limitKinds(shown map[types.UID]bool, kinds map[schema.GroupKind]bool) {
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

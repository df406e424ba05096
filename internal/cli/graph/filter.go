package graph

import (
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
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

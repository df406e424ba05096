package release

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/release"
)

func printHeld(out io.Writer, held []release.HeldObject) {
	t := printer.Table{Header: []string{"NAMESPACE", "OBJECT", "STATE", "REMOVED", "OTHER FINALIZERS"}}
	for _, h := range held {
		state, color := "active", printer.Color("")
		if h.Terminating {
			state, color = "terminating", printer.Bad
			if len(h.OtherFinalizers) != 0 {
				state, color = "terminating, also blocked by others", printer.Caution
			}
		}
		t.Add(printer.Cell{Text: h.Namespace}, printer.Cell{Text: h.String()}, printer.Cell{Text: state, Color: color},
			printer.Cell{Text: strings.Join(h.Finalizers, ",")}, printer.Cell{Text: strings.Join(h.OtherFinalizers, ",")})
	}
	_ = t.Write(out, printer.PaletteFor(out)) // an error can't be reported either
}

// releaseSummary returns how many objects of which types were released, and which finalizers
// were removed. Objects that were released repeatedly count once.
func releaseSummary(released []release.HeldObject) string {
	if len(released) == 0 {
		return "No object was released."
	}
	objects, resources, finalizers := map[types.UID]bool{}, map[string]int{}, map[string]map[types.UID]bool{}
	for _, h := range released {
		if !objects[h.UID] {
			objects[h.UID] = true
			resources[h.Resource.GroupResource().String()]++
		}
		for _, f := range h.Finalizers {
			if finalizers[f] == nil {
				finalizers[f] = map[types.UID]bool{}
			}
			finalizers[f][h.UID] = true
		}
	}
	var of, removed []string
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		of = append(of, fmt.Sprintf("%s: %d", name, resources[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(finalizers)) {
		removed = append(removed, fmt.Sprintf("%s from %d", name, len(finalizers[name])))
	}
	return fmt.Sprintf("Released %s (%s): removed %s.",
		printer.Count(len(objects), "object", "objects"), strings.Join(of, ", "), strings.Join(removed, ", "))
}

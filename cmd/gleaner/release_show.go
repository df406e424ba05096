package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/release"
)

func show(out io.Writer, held []release.Held) {
	t := kubectl.Table{Header: []string{"NAMESPACE", "OBJECT", "STATE", "TAKEN OFF", "OTHER FINALIZERS"}}
	for _, h := range held {
		state, color := "held", kubectl.Color("")
		if h.Terminating {
			state, color = "being deleted: goes once it is released", kubectl.Bad
			if len(h.Others) != 0 {
				state, color = "being deleted: waits for others, too", kubectl.Unsure
			}
		}
		t.Add(kubectl.Cell{Text: h.Namespace}, kubectl.Cell{Text: h.String()}, kubectl.Cell{Text: state, Color: color},
			kubectl.Cell{Text: strings.Join(h.Finalizers, ",")}, kubectl.Cell{Text: strings.Join(h.Others, ",")})
	}
	_ = t.Write(out, kubectl.PaletteFor(out)) // nobody is left to be told
}

// releaseSummary says what was released: of which types, and which finalizers were removed. An
// object that got a finalizer back, and was released again, counts once.
func releaseSummary(released []release.Held) string {
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
		counted(len(objects), "object", "objects"), strings.Join(of, ", "), strings.Join(removed, ", "))
}

// confirmed asks whether to go on.
func confirmed(in io.Reader, out io.Writer, question string) bool {
	kubectl.Fprintf(out, "%s [y/N] ", question)
	line, _ := bufio.NewReader(in).ReadString('\n')
	kubectl.Fprintln(out)
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

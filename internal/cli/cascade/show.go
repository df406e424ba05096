package cascade

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/cascade"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	maxRows  = 15 // of the tree on a terminal
	maxNamed = 3  // objects named in a line
	maxKept  = 10 // kept objects that are listed at the end
	barWidth = 24
)

// nameOf returns Kind/name.
func nameOf(o graph.Object) string { return o.Kind.Kind + "/" + o.Name }

// waitingText returns what an object waits for.
func waitingText(l cascade.Left) string {
	w := l.Waiting
	switch w.For {
	case cascade.Finalizers:
		noun := "finalizer "
		if len(w.Finalizers) > 1 {
			noun = "finalizers "
		}
		return noun + strings.Join(w.Finalizers, ", ")
	case cascade.Policy:
		return "a policy to decide about its dependents"
	case cascade.Orphaning:
		return "its dependents to be orphaned"
	case cascade.Dependents:
		switch {
		case w.Object.Name == "":
			return "its dependents"
		case w.Others != 0:
			return fmt.Sprintf("%s and %d more", nameOf(w.Object), w.Others)
		}
		return nameOf(w.Object)
	case cascade.OwnerLeft:
		return "its owner " + nameOf(w.Object)
	case cascade.OwnerGone:
		return "the garbage collector, because its owner " + nameOf(w.Object) + " is gone"
	case cascade.Deletion:
	}
	switch {
	case !l.Terminating:
		return "its deletion"
	case l.Kind.Group == "" && l.Kind.Kind == "Pod":
		return "its containers to end"
	case l.Kind.Group == "" && l.Kind.Kind == "Namespace":
		return "what is in it"
	}
	return "the API server to remove it"
}

// progressLine returns the numbers in one line.
func progressLine(s cascade.Status) string {
	line := fmt.Sprintf("%d of %s gone", s.Gone, printer.Count(s.Total(), "object", "objects"))
	if len(s.Kept) != 0 {
		line += fmt.Sprintf(", %d kept", len(s.Kept))
	}
	if len(s.Left) != 0 {
		line += fmt.Sprintf(", %d left", len(s.Left))
	}
	return line
}

// holders returns the objects that hold up the others: those that wait for neither an owner nor dependents.
func holders(s cascade.Status) []string {
	var named []string
	more := 0
	for _, l := range s.Left {
		switch l.Waiting.For {
		case cascade.OwnerLeft, cascade.Dependents:
			continue
		case cascade.Finalizers, cascade.Policy, cascade.Orphaning, cascade.OwnerGone, cascade.Deletion:
		}
		if len(named) == maxNamed {
			more++
			continue
		}
		named = append(named, nameOf(l.Object)+" waits for "+waitingText(l))
	}
	if more != 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return named
}

// plainLine returns the status in one line.
func plainLine(s cascade.Status) string {
	line := progressLine(s)
	if waiting := holders(s); len(waiting) != 0 {
		line += ": " + strings.Join(waiting, "; ")
	}
	return line
}

// liveLines returns the status for a terminal: the tree of what is left, and a bar.
func liveLines(s cascade.Status, unread []string, took time.Duration) []string {
	shown := s.Left[:min(len(s.Left), maxRows)]
	depths := make([]int, len(shown))
	for i, l := range shown {
		depths[i] = l.Depth
	}
	var lines []string
	for i, prefix := range printer.TreePrefixes(depths) {
		lines = append(lines, fmt.Sprintf("%s%s waits for %s", prefix, nameOf(shown[i].Object), waitingText(shown[i])))
	}
	if more := len(s.Left) - len(shown); more != 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	for _, text := range unread {
		lines = append(lines, "can't be read: "+text)
	}
	settled := s.Gone + len(s.Kept)
	filled := barWidth * settled / max(s.Total(), 1)
	return append(lines, fmt.Sprintf("[%s%s] %s, %s", strings.Repeat("#", filled), strings.Repeat("-", barWidth-filled), progressLine(s), took.Round(time.Second)))
}

// writeEnd writes the final status, and the types that could not be read.
func writeEnd(out io.Writer, s cascade.Status, unread []string, took time.Duration) {
	printer.Fprintf(out, "Done after %s: %s.\n", took.Round(time.Second), progressLine(s))
	kept := slices.Clone(s.Kept[:min(len(s.Kept), maxKept)])
	for _, o := range kept {
		printer.Fprintf(out, "  kept: %s\n", nameOf(o))
	}
	if more := len(s.Kept) - len(kept); more != 0 {
		printer.Fprintf(out, "  … and %d more\n", more)
	}
	printer.WriteLines(out, printer.PaletteFor(out), "Not checked, because it can't be read:", unread)
}

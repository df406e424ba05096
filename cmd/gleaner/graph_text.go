package main

import (
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/decide"
)

// writeOwnership writes who owns whom for people.
func writeOwnership(out io.Writer, o *ownership, wide bool) error {
	p := kubectl.PaletteFor(out)
	if len(o.Objects) == 0 {
		switch {
		case o.NotShown != 0:
			kubectl.Fprintf(out, "%s not shown, because of --kind.\n", counted(o.NotShown, "object is", "objects are"))
		case len(o.Unread) == 0:
			kubectl.Fprintln(out, "Nothing there owns anything, or is owned.")
		default:
			kubectl.Fprintln(out, "Nothing that could be read owns anything, or is owned.")
		}
		writeLines(out, p, "Not known, since it can't be read:", o.Unread)
		return nil
	}
	namespaces := map[string]bool{}
	depths := make([]int, len(o.Objects))
	for i, object := range o.Objects {
		depths[i] = object.depth
		if object.Namespace != "" {
			namespaces[object.Namespace] = true
		}
	}
	table := &kubectl.Table{Header: []string{"OBJECT", "NAMESPACE", "STATE", "FINALIZERS", "BLOCKS", "OWNER", "UID"}}
	lines := branches(depths)
	for i, object := range o.Objects {
		row := object.row(lines[i])
		if len(namespaces) < 2 && !wide {
			row[1].Text = ""
		}
		if !wide {
			row[len(row)-1].Text = ""
		}
		table.Add(row...)
	}
	err := table.Write(out, p)
	if o.NotShown != 0 {
		kubectl.Fprintf(out, "\n%s not shown, because of --depth and --kind.\n", counted(o.NotShown, "object is", "objects are"))
	}
	writeLines(out, p, "Not known, since it can't be read:", o.Unread)
	return err
}

// row is an object in the table.
func (o *ownedObject) row(line string) []kubectl.Cell {
	name := kubectl.Cell{Text: line + o.Kind + "/" + o.Name}
	if o.Asked {
		name.Color = kubectl.Strong
	}
	state := kubectl.Cell{Text: o.state(), Color: kubectl.Unsure}
	if o.Since != nil {
		state.Text += " for " + duration.HumanDuration(time.Since(o.Since.Time))
	}
	if o.Missing == decide.Absent.String() {
		state.Color, name.Color = kubectl.Bad, kubectl.Bad
	}
	blocks := ""
	for _, owner := range o.Owners {
		if owner.Blocks {
			blocks = "yes"
		}
	}
	return []kubectl.Cell{
		name, {Text: o.Namespace}, state, {Text: strings.Join(o.Finalizers, ",")}, {Text: blocks},
		{Text: o.otherOwners(), Color: kubectl.Unsure}, {Text: string(o.UID), Color: kubectl.Faint},
	}
}

// state says whether an object is being deleted, and how, or is missing.
func (o *ownedObject) state() string {
	switch {
	case o.Missing == decide.Present.String():
		return "not listed"
	case o.Missing != "":
		return strings.ToLower(o.Missing)
	case o.Terminating == "":
		return ""
	}
	text := "terminating"
	if how := map[string]string{"Foreground": "in the foreground", "Orphan": "orphaning"}[o.Terminating]; how != "" {
		text += ", " + how
	}
	return text
}

// otherOwners are the owners that the tree does not show an object below, and what
// there is to know of the others.
func (o *ownedObject) otherOwners() string {
	var texts []string
	for i, owner := range o.Owners {
		known := owner.Standing != "" && owner.Standing != decide.Present.String()
		switch {
		case i > 0 && known:
			texts = append(texts, "also "+owner.name+", "+strings.ToLower(owner.Standing))
		case i > 0:
			texts = append(texts, "also "+owner.name)
		case known:
			texts = append(texts, strings.ToLower(owner.Standing)+": "+owner.Because)
		}
	}
	return strings.Join(texts, "; ")
}

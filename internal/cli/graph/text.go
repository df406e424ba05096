package graph

import (
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/decide"
)

// writeOwnership writes the ownership as text.
func writeOwnership(out io.Writer, o *ownership.Ownership, wide bool) error {
	p := printer.PaletteFor(out)
	if len(o.Objects) == 0 {
		switch {
		case o.NotShown != 0:
			printer.Fprintf(out, "%s not shown because of --kind.\n", printer.Count(o.NotShown, "object is", "objects are"))
		case len(o.Unread) == 0:
			printer.Fprintln(out, "No object has owners or dependents.")
		default:
			printer.Fprintln(out, "No object that could be read has owners or dependents.")
		}
		printer.WriteLines(out, p, "Unknown because it can't be read:", o.Unread)
		return nil
	}
	namespaces := map[string]bool{}
	depths := make([]int, len(o.Objects))
	for i, object := range o.Objects {
		depths[i] = object.Depth
		if object.Namespace != "" {
			namespaces[object.Namespace] = true
		}
	}
	table := &printer.Table{Header: []string{"OBJECT", "NAMESPACE", "STATE", "FINALIZERS", "BLOCKS", "OWNER", "UID"}}
	lines := printer.TreePrefixes(depths)
	for i := range o.Objects {
		row := rowOf(&o.Objects[i], lines[i])
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
		printer.Fprintf(out, "\n%s not shown because of --depth and --kind.\n", printer.Count(o.NotShown, "object is", "objects are"))
	}
	if o.Folded != 0 {
		printer.Fprintf(out, "\n%s not shown because of --fold.\n", printer.Count(o.Folded, "similar object is", "similar objects are"))
	}
	printer.WriteLines(out, p, "Unknown because it can't be read:", o.Unread)
	return err
}

// rowOf returns the table row of an object.
func rowOf(o *ownership.Object, line string) []printer.Cell {
	name := printer.Cell{Text: strings.TrimSpace(o.Kind + "/" + o.Name + " " + o.Others())}
	name.Text = line + name.Text
	if o.Target {
		name.Color = printer.Strong
	}
	state := printer.Cell{Text: o.State(), Color: printer.Caution}
	if o.Since != nil {
		state.Text += " for " + duration.HumanDuration(time.Since(o.Since.Time))
	}
	if o.Missing == decide.Absent.String() {
		state.Color, name.Color = printer.Bad, printer.Bad
	}
	blocks := ""
	for _, owner := range o.Owners {
		if owner.Blocks {
			blocks = "yes"
		}
	}
	return []printer.Cell{
		name, {Text: o.Namespace}, state, {Text: strings.Join(o.Finalizers, ",")}, {Text: blocks},
		{Text: o.OtherOwners(), Color: printer.Caution}, {Text: string(o.UID), Color: printer.Faint},
	}
}

package preview

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// nameOf returns the name of an object as -o name prints it.
func nameOf(o record.Object) string {
	gk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind()
	return strings.ToLower(gk.String()) + "/" + o.Name
}

// maxAlike is the number of consecutive objects that differ only by name and have no dependents
// that are shown; the rest is counted.
const maxAlike = 5

var outcomeColors = map[string]printer.Color{
	preview.Goes.String(): printer.Bad, preview.Waits.String(): printer.Caution,
	preview.Stays.String(): printer.Good, preview.Unknown.String(): printer.Caution,
}

// writePreview writes a preview as text. Wide shows every object, with more columns.
func writePreview(out io.Writer, d *deletionPreview, wide bool) error {
	printer.Fprintf(out, "If %s were deleted (--cascade=%s):\n\n", objectInNamespace(d.Target), strings.ToLower(d.Cascade))
	return writeOutcomes(out, d, wide)
}

// writeOutcomes writes what would happen.
func writeOutcomes(out io.Writer, d *deletionPreview, wide bool) error {
	p := printer.PaletteFor(out)
	if err := previewTable(d, wide).Write(out, p); err != nil {
		return err
	}
	printer.Fprintln(out)
	if err := countsTable(d.Summary).Write(out, p); err != nil {
		return err
	}
	printer.WriteLines(out, p, "Unknown because it can't be read:", d.Unread)
	printer.WriteLines(out, p, "Note:", d.Notes)
	return nil
}

// objectInNamespace returns an object with its namespace.
func objectInNamespace(o record.Object) string {
	text := o.Kind + "/" + o.Name
	if o.Namespace != "" {
		text += " in namespace " + o.Namespace
	}
	return text
}

func previewTable(d *deletionPreview, wide bool) *printer.Table {
	table := &printer.Table{Header: []string{"OBJECT", "OUTCOME", "WHY"}}
	if wide {
		table.Header = []string{"OBJECT", "NAMESPACE", "OUTCOME", "REASON", "POLICY", "UID", "WHY"}
	}
	depths := make([]int, len(d.Objects))
	for i, o := range d.Objects {
		depths[i] = o.depth
	}
	lines := printer.TreePrefixes(depths)
	for i := 0; i < len(d.Objects); i++ {
		o := d.Objects[i]
		name := printer.Cell{Text: lines[i] + o.Kind + "/" + o.Name}
		outcome := printer.Cell{Text: strings.ToLower(o.Outcome), Color: outcomeColors[o.Outcome]}
		if wide {
			table.Add(name, printer.Cell{Text: o.Namespace}, outcome, printer.Cell{Text: o.Reason}, printer.Cell{Text: o.Policy},
				printer.Cell{Text: string(o.UID)}, printer.Cell{Text: o.reasonText()})
			continue
		}
		if n := countAlike(d.Objects, i); n > maxAlike+1 {
			more := n - maxAlike
			for range maxAlike {
				table.Add(printer.Cell{Text: lines[i] + d.Objects[i].Kind + "/" + d.Objects[i].Name}, outcome, printer.Cell{Text: d.Objects[i].reasonText()})
				i++
			}
			i += more - 1
			table.Add(printer.Cell{Text: fmt.Sprintf("%s… and %d more of kind %s", lines[i], more, o.Kind), Color: printer.Faint}, outcome)
			table.Rows[len(table.Rows)-1] = append(table.Rows[len(table.Rows)-1], printer.Cell{})
			continue
		}
		table.Add(name, outcome, printer.Cell{Text: o.reasonText()})
	}
	return table
}

// countAlike counts the consecutive objects, starting at an index, that differ only by name.
func countAlike(objects []previewObject, from int) int {
	o := objects[from]
	n := 0
	for i := from; i < len(objects); i++ {
		next := objects[i]
		below := i+1 < len(objects) && objects[i+1].depth > next.depth
		if below || next.Parent != o.Parent || next.depth != o.depth || next.Kind != o.Kind || next.Outcome != o.Outcome ||
			next.Then != o.Then || next.Reason != o.Reason || next.Policy != o.Policy || next.Message != o.Message {
			break
		}
		n++
	}
	return n
}

// reasonText returns the reason of the outcome in one line.
func (o previewObject) reasonText() string {
	parts := []string{o.Message}
	switch {
	case o.Outcome != preview.Waits.String():
	case o.After != "":
		parts = append(parts, "then "+strings.ToLower(o.Then)+", after "+o.After)
	case o.Then != "":
		parts = append(parts, "then "+strings.ToLower(o.Then))
	default:
		parts = append(parts, "the outcome afterwards is unknown")
	}
	if o.Dependents != "" {
		parts = append(parts, fmt.Sprintf("its dependents: %s, decided by %s", o.Dependents, o.DependentsPolicy))
	}
	for _, a := range o.Evaluations {
		if a.Mode == "Monitor" && a.Fault == "" {
			parts = append(parts, fmt.Sprintf("%s in Monitor mode decides %s", a.Policy, a.Decision))
		}
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// countsTable returns the numbers of objects by kind and outcome.
func countsTable(s summary) *printer.Table {
	table := &printer.Table{Header: []string{"KIND", "GO", "WAIT", "STAY", "UNKNOWN"}}
	row := func(name string, o outcomes, color printer.Color) {
		cells := []printer.Cell{{Text: name, Color: color}}
		for _, n := range []int{o.Goes, o.Waits, o.Stays, o.Unknown} {
			text := ""
			if n != 0 {
				text = strconv.Itoa(n)
			}
			cells = append(cells, printer.Cell{Text: text, Color: color})
		}
		table.Add(cells...)
	}
	for _, k := range s.ByKind {
		row(schema.GroupKind{Group: k.Group, Kind: k.Kind}.String(), k.outcomes, "")
	}
	row("all", s.outcomes, printer.Strong)
	return table
}

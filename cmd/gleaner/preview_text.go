package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// nameOf is an object as -o name writes it.
func nameOf(o record.Object) string {
	gk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind()
	return strings.ToLower(gk.String()) + "/" + o.Name
}

// alike is how many objects in a row, alike and with nothing below them, are shown
// before the rest is only counted.
const alike = 5

var outcomeColors = map[string]kubectl.Color{
	preview.Goes.String(): kubectl.Bad, preview.Waits.String(): kubectl.Unsure,
	preview.Stays.String(): kubectl.Good, preview.Unknown.String(): kubectl.Unsure,
}

// writePreview writes a preview for people. Wide shows each object, and more of it.
func writePreview(out io.Writer, d *deletionPreview, wide bool) error {
	p := kubectl.PaletteFor(out)
	kubectl.Fprintf(out, "If %s were deleted (--cascade=%s):\n\n", placeOf(d.Target), strings.ToLower(d.Cascade))
	if err := previewTable(d, wide).Write(out, p); err != nil {
		return err
	}
	kubectl.Fprintln(out)
	if err := countsTable(d.Summary).Write(out, p); err != nil {
		return err
	}
	writeLines(out, p, "Not known, since it can't be read:", d.Unread)
	writeLines(out, p, "Note:", d.Notes)
	return nil
}

// placeOf is an object with its namespace.
func placeOf(o record.Object) string {
	text := o.Kind + "/" + o.Name
	if o.Namespace != "" {
		text += " in namespace " + o.Namespace
	}
	return text
}

func writeLines(out io.Writer, p kubectl.Palette, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	kubectl.Fprintf(out, "\n%s\n", p.Paint(kubectl.Unsure, title))
	for _, line := range lines {
		kubectl.Fprintf(out, "  %s\n", line)
	}
}

func previewTable(d *deletionPreview, wide bool) *kubectl.Table {
	table := &kubectl.Table{Header: []string{"OBJECT", "OUTCOME", "WHY"}}
	if wide {
		table.Header = []string{"OBJECT", "NAMESPACE", "OUTCOME", "REASON", "POLICY", "UID", "WHY"}
	}
	depths := make([]int, len(d.Objects))
	for i, o := range d.Objects {
		depths[i] = o.depth
	}
	lines := branches(depths)
	for i := 0; i < len(d.Objects); i++ {
		o := d.Objects[i]
		name := kubectl.Cell{Text: lines[i] + o.Kind + "/" + o.Name}
		outcome := kubectl.Cell{Text: strings.ToLower(o.Outcome), Color: outcomeColors[o.Outcome]}
		if wide {
			table.Add(name, kubectl.Cell{Text: o.Namespace}, outcome, kubectl.Cell{Text: o.Reason}, kubectl.Cell{Text: o.Policy},
				kubectl.Cell{Text: string(o.UID)}, kubectl.Cell{Text: o.why()})
			continue
		}
		if n := alikeFrom(d.Objects, i); n > alike+1 {
			more := n - alike
			for range alike {
				table.Add(kubectl.Cell{Text: lines[i] + d.Objects[i].Kind + "/" + d.Objects[i].Name}, outcome, kubectl.Cell{Text: d.Objects[i].why()})
				i++
			}
			i += more - 1
			table.Add(kubectl.Cell{Text: fmt.Sprintf("%s… and %d more of kind %s", lines[i], more, o.Kind), Color: kubectl.Faint}, outcome)
			table.Rows[len(table.Rows)-1] = append(table.Rows[len(table.Rows)-1], kubectl.Cell{})
			continue
		}
		table.Add(name, outcome, kubectl.Cell{Text: o.why()})
	}
	return table
}

// alikeFrom counts the objects from one on that differ by their names alone.
func alikeFrom(objects []previewObject, from int) int {
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

// why says all that there is to say of an object in a line.
func (o previewObject) why() string {
	parts := []string{o.Message}
	switch {
	case o.Outcome != preview.Waits.String():
	case o.After != "":
		parts = append(parts, "then "+strings.ToLower(o.Then)+", after "+o.After)
	case o.Then != "":
		parts = append(parts, "then "+strings.ToLower(o.Then))
	default:
		parts = append(parts, "what comes then can't be told")
	}
	if o.Dependents != "" {
		parts = append(parts, fmt.Sprintf("its dependents go by %s, as %s says", o.Dependents, o.DependentsPolicy))
	}
	for _, a := range o.Asked {
		if a.Mode == "Monitor" && a.Fault == "" {
			parts = append(parts, fmt.Sprintf("%s would say %s, and is in Monitor", a.Policy, a.Decision))
		}
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// countsTable counts objects by kind and outcome.
func countsTable(s summary) *kubectl.Table {
	table := &kubectl.Table{Header: []string{"KIND", "GO", "WAIT", "STAY", "UNKNOWN"}}
	row := func(name string, o outcomes, color kubectl.Color) {
		cells := []kubectl.Cell{{Text: name, Color: color}}
		for _, n := range []int{o.Goes, o.Waits, o.Stays, o.Unknown} {
			text := ""
			if n != 0 {
				text = strconv.Itoa(n)
			}
			cells = append(cells, kubectl.Cell{Text: text, Color: color})
		}
		table.Add(cells...)
	}
	for _, k := range s.ByKind {
		row(schema.GroupKind{Group: k.Group, Kind: k.Kind}.String(), k.outcomes, "")
	}
	row("all", s.outcomes, kubectl.Strong)
	return table
}

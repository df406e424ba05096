// Package picture draws owners and dependents as SVG.
package picture

import (
	"fmt"
	"hash/fnv"
	"html"
	"io"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/escape"
)

// Sizes in pixels.
const (
	svgMargin = 24
	svgGapX   = 56 // between columns, for the edges
	svgGapY   = 12
	svgLine   = 16
	svgPad    = 12
	svgBar    = 5 // the colored edge of a box

	// Approximate character widths in the widest of the fonts: for names, which are bold, and
	// for other text.
	svgNameChar = 8.6
	svgChar     = 6.5
)

// svgBox is the box of one object.
type svgBox struct {
	*ownership.Object
	lines      []string
	x, y, w, h float64
	below      []*svgBox
}

// Write draws the tree from left to right, with dependents to the right of their owner, as a file of its own.
// References to additional owners are dashed.
func Write(out io.Writer, o *ownership.Ownership) error {
	d := newDrawing(o)
	d.height += svgLegendHeight
	d.width = max(d.width, svgLegendWidth)
	var b strings.Builder
	d.begin(&b, ` font-family="-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"`)
	b.WriteString(svgStyle)
	printer.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#fff"/>`+"\n", d.width, d.height)
	d.draw(&b, Options{})
	svgLegend(&b, d.height)
	b.WriteString("</svg>\n")
	_, err := printer.Fprintf(out, "%s", printer.Safe(b.String()))
	return err
}

// Options are what a picture in a page has beyond that of a file.
type Options struct {
	Link  func(*ownership.Object) string // the address of a page about an object
	Class func(*ownership.Object) string // a class of its box; "": that of its state only
}

// Inline draws the same picture as an SVG element for an HTML page. The colors are in the stylesheet of the page.
func Inline(o *ownership.Ownership, options Options) string {
	d := newDrawing(o)
	var b strings.Builder
	d.begin(&b, ` role="group" aria-label="Owners and dependents"`)
	d.draw(&b, options)
	b.WriteString("</svg>\n")
	return b.String()
}

// drawing is the boxes of objects, in their places.
type drawing struct {
	boxes         []*svgBox
	width, height float64
}

func newDrawing(o *ownership.Ownership) drawing {
	boxes, roots := svgBoxes(o)
	width, height := svgLayout(boxes, roots)
	return drawing{boxes, width, height}
}

func (d drawing) begin(b *strings.Builder, attributes printer.Safe) {
	printer.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f"%s>`+"\n", d.width, d.height, d.width, d.height, attributes)
	b.WriteString("<title>Owners and dependents</title>\n")
}

func (d drawing) draw(b *strings.Builder, options Options) {
	at := map[types.UID]*svgBox{}
	for _, box := range d.boxes {
		at[box.UID] = box
	}
	for _, box := range d.boxes {
		for _, owner := range box.Owners {
			if from := at[owner.UID]; from != nil {
				b.WriteString(svgEdge(from, box, owner))
			}
		}
	}
	for _, box := range d.boxes {
		box.draw(b, options)
	}
}

const svgStyle = `<style>
.box{fill:#f8fafc;stroke:#94a3b8}
.terminating{fill:#fff7e0;stroke:#d97706}
.missing{fill:#fff;stroke:#dc2626;stroke-dasharray:5 3}
.target{stroke:#1d4ed8;stroke-width:2.5}
.kind{font-size:10.5px;fill:#64748b}
.name{font-size:12.5px;fill:#0f172a;font-weight:600}
.more{font-size:10.5px;fill:#b45309}
.edge{fill:none;stroke:#94a3b8;stroke-width:1.2}
.blocks{stroke:#334155;stroke-width:2.2}
.further{stroke-dasharray:5 4}
</style>
`

// svgColors distinguish kinds; they repeat if there are more kinds.
var svgColors = []string{"#2563eb", "#0d9488", "#7c3aed", "#ca8a04", "#db2777", "#059669", "#ea580c", "#4f46e5", "#0891b2", "#65a30d"}

func svgColor(kind string) string { return svgColors[Color(kind)] }

// Color returns the number of the color of a kind, from 0 to 9.
func Color(kind string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(kind))
	return int(h.Sum32() % uint32(len(svgColors)))
}

// svgBoxes returns the boxes of all objects, and those without a parent.
func svgBoxes(o *ownership.Ownership) (boxes, roots []*svgBox) {
	at := map[types.UID]*svgBox{}
	for i := range o.Objects {
		object := &o.Objects[i]
		box := &svgBox{Object: object, lines: []string{object.Name}}
		if state := object.State(); state != "" {
			box.lines = append(box.lines, state)
		}
		if others := object.Others(); others != "" {
			box.lines = append(box.lines, others)
		}
		for _, f := range object.Finalizers {
			box.lines = append(box.lines, "finalizer "+f)
		}
		box.w = max(svgWidth(box.head(), svgChar), svgWidth(object.Name, svgNameChar))
		for _, line := range box.lines[1:] {
			box.w = max(box.w, svgWidth(line, svgChar))
		}
		box.w += 2*svgPad + svgBar
		box.h = float64(len(box.lines)+1)*svgLine + svgPad
		at[object.UID] = box
		boxes = append(boxes, box)
		if parent := at[object.Parent]; object.Parent != "" && parent != nil {
			parent.below = append(parent.below, box)
			continue
		}
		roots = append(roots, box)
	}
	return boxes, roots
}

func svgWidth(text string, char float64) float64 { return float64(utf8.RuneCountInString(text)) * char }

// head returns the first line of a box.
func (b *svgBox) head() string {
	if b.Namespace == "" {
		return b.Kind
	}
	return b.Kind + " · " + b.Namespace
}

// svgLayout positions the boxes: one column for each depth, as wide as its widest box, and
// owners vertically centered on their dependents. It returns the total size.
func svgLayout(boxes, roots []*svgBox) (width, height float64) {
	var widths []float64
	for _, box := range boxes {
		for len(widths) <= box.Depth {
			widths = append(widths, 0)
		}
		widths[box.Depth] = max(widths[box.Depth], box.w)
	}
	columns := make([]float64, len(widths))
	width = svgMargin
	for i, w := range widths {
		columns[i] = width
		width += w + svgGapX
	}
	y := float64(svgMargin)
	for _, root := range roots {
		y = root.place(columns, y) + svgGapY
	}
	return width - svgGapX + svgMargin, y
}

// place positions a box and its descendants from y downwards, and returns the y coordinate
// below them.
func (b *svgBox) place(columns []float64, y float64) (end float64) {
	b.x = columns[b.Depth]
	if len(b.below) == 0 {
		b.y = y
		return y + b.h + svgGapY
	}
	end = y
	for _, next := range b.below {
		end = next.place(columns, end)
	}
	first, last := b.below[0], b.below[len(b.below)-1]
	b.y = max(y, (first.y+last.y+last.h)/2-b.h/2)
	return max(end, b.y+b.h+svgGapY)
}

func svgEdge(from, to *svgBox, owner ownership.Owner) string {
	class := "edge"
	if owner.Blocks {
		class += " blocks"
	}
	if to.Parent != from.UID {
		class += " further"
	}
	x1, y1, x2, y2 := from.x+from.w, from.y+from.h/2, to.x, to.y+to.h/2
	bend := max((x2-x1)/2, svgGapX/2)
	return fmt.Sprintf(`<path class=%q d="M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f"/>`+"\n", class, x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)
}

func (b *svgBox) draw(to *strings.Builder, options Options) {
	class := "box"
	switch {
	case b.Missing == decide.Absent.String() || b.Missing == decide.Unknown.String():
		class += " missing"
	case b.Terminating != "":
		class += " terminating"
	}
	if b.Target {
		class += " target"
	}
	if options.Class != nil {
		if own := options.Class(b.Object); own != "" {
			class += " " + own
		}
	}
	title := b.Kind + "/" + b.Name
	if b.Because != "" {
		title += ": " + b.Because
	}
	if options.Link != nil {
		printer.Fprintf(to, `<a href="%s">`, html.EscapeString(options.Link(b.Object)))
		defer to.WriteString("</a>\n")
	}
	printer.Fprintf(to, "<g><title>%s</title>", svgText(title))
	printer.Fprintf(to, `<rect class=%q x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="6"/>`, class, b.x, b.y, b.w, b.h)
	printer.Fprintf(to, `<rect x="%.1f" y="%.1f" width="%d" height="%.1f" rx="2.5" fill=%q/>`, b.x+4, b.y+6, svgBar, b.h-12, svgColor(b.Kind))
	x, y := b.x+svgPad+svgBar, b.y+svgLine
	printer.Fprintf(to, `<text class="kind" x="%.1f" y="%.1f">%s</text>`, x, y, svgText(b.head()))
	for i, line := range b.lines {
		y += svgLine
		class := "name"
		if i > 0 {
			class = "more"
		}
		printer.Fprintf(to, `<text class=%q x="%.1f" y="%.1f">%s</text>`, class, x, y, svgText(line))
	}
	to.WriteString("</g>\n")
}

// svgText escapes text for SVG, in which control characters are not allowed even as entities.
func svgText(text string) string { return html.EscapeString(escape.Text(text)) }

const (
	svgLegendHeight = 36
	svgLegendWidth  = 640
)

// svgLegend draws the legend of the edges.
func svgLegend(to *strings.Builder, height float64) {
	x, y := float64(svgMargin), height-svgMargin
	for _, entry := range []struct{ class, text string }{
		{"edge", "owns"}, {"edge blocks", "owns; blocks foreground deletion"}, {"edge further", "additional owner"},
	} {
		printer.Fprintf(to, `<path class=%q d="M%.1f %.1fh28"/><text class="kind" x="%.1f" y="%.1f">%s</text>`+"\n", entry.class, x, y, x+34, y+4, entry.text)
		x += 34 + svgWidth(entry.text, svgChar) + 24
	}
}

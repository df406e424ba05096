package kubectl

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Cell is one field of a table.
type Cell struct {
	Text  string
	Color Color
}

// Table is a table as kubectl writes them: columns three spaces apart, and nothing
// after the last.
type Table struct {
	Header []string
	Rows   [][]Cell
}

// Add adds a row.
func (t *Table) Add(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// Write writes the table. A column that has no text in any row is left out.
func (t *Table) Write(out io.Writer, p Palette) error {
	widths := make([]int, len(t.Header))
	for i, title := range t.Header {
		for _, row := range t.Rows {
			if width := utf8.RuneCountInString(row[i].Text); width != 0 {
				widths[i] = max(widths[i], width, utf8.RuneCountInString(title))
			}
		}
	}
	var b strings.Builder
	header := make([]Cell, len(t.Header))
	for i, title := range t.Header {
		header[i].Text = title
	}
	for _, row := range append([][]Cell{header}, t.Rows...) {
		b.WriteString(line(row, widths, p) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// line is one row. What is behind the last text is left out, since a terminal that
// is too narrow would show it as an empty line.
func line(row []Cell, widths []int, p Palette) string {
	var b strings.Builder
	gap := 0
	for i, cell := range row {
		if widths[i] == 0 {
			continue
		}
		width := utf8.RuneCountInString(cell.Text)
		if width != 0 {
			fmt.Fprint(&b, strings.Repeat(" ", gap), p.Paint(cell.Color, cell.Text))
			gap = 0
		}
		gap += widths[i] - width + 3
	}
	return b.String()
}

package printer

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gleaner-dev/gleaner/operator/escape"
)

// Cell is one field of a table.
type Cell struct {
	Text  string
	Color Color
}

// Table is a table in kubectl's format: columns are separated by three spaces, without
// trailing spaces.
type Table struct {
	Header []string
	Rows   [][]Cell
}

// Add adds a row.
func (t *Table) Add(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// Write writes the table. Empty columns are omitted.
func (t *Table) Write(out io.Writer, p Palette) error {
	rows := t.shown()
	widths := make([]int, len(t.Header))
	for i, title := range t.Header {
		for _, row := range rows {
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
	for _, row := range append([][]Cell{header}, rows...) {
		b.WriteString(rowText(row, widths, p) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// shown returns the rows with each text escaped to one line, so that it can't forge a row.
func (t *Table) shown() [][]Cell {
	rows := make([][]Cell, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = slices.Clone(row)
		for j := range row {
			rows[i][j].Text = escape.Text(row[j].Text)
		}
	}
	return rows
}

// rowText returns one row, without trailing spaces, which a narrow terminal would show as an
// empty line.
func rowText(row []Cell, widths []int, p Palette) string {
	var b strings.Builder
	gap := 0
	for i, cell := range row {
		if widths[i] == 0 {
			continue
		}
		width := utf8.RuneCountInString(cell.Text)
		if width != 0 {
			b.WriteString(strings.Repeat(" ", gap) + p.Paint(cell.Color, cell.Text))
			gap = 0
		}
		gap += widths[i] - width + 3
	}
	return b.String()
}

package kubectl

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

// shown are the rows with each text on one line, so that none forges another row.
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

// rowText is one row. What is behind the last text is left out, since a terminal that
// is too narrow would show it as an empty line.
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

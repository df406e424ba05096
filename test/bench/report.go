package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// report collects figures and prints them as a Markdown table.
type report struct {
	figures []string
	values  map[string]map[string]float64 // by figure, then by contender
	notes   []string                      // figures without a comparison
	tables  []table
}

// table is a part of the report with its own columns.
type table struct {
	columns []string // the first describes the row
	rows    [][]string
}

func (t table) print(w io.Writer) {
	fmt.Fprintf(w, "\n| %s |\n|---%s|\n", strings.Join(t.columns, " | "), strings.Repeat("|---:", len(t.columns)-1))
	for _, row := range t.rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}

// note adds a figure without a comparison.
func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
	progress(format, args...)
}

func (r *report) add(contender, figure string, value float64) {
	if r.values == nil {
		r.values = map[string]map[string]float64{}
	}
	if !slices.Contains(r.figures, figure) {
		r.figures = append(r.figures, figure)
		r.values[figure] = map[string]float64{}
	}
	r.values[figure][contender] = value
}

func (r *report) print(w io.Writer) {
	if len(r.figures) != 0 {
		r.printFigures(w)
	}
	for _, t := range r.tables {
		t.print(w)
	}
	if len(r.notes) != 0 {
		fmt.Fprintln(w)
	}
	for _, note := range r.notes {
		fmt.Fprintf(w, "* %s\n", note)
	}
}

func (r *report) printFigures(w io.Writer) {
	fmt.Fprintf(w, "| | %s | %s | ratio | %s | of that |\n|---|---:|---:|---:|---:|---:|\n", upstreamName, gleanerName, floorName)
	for _, figure := range r.figures {
		row := r.values[figure]
		theirs, own := row[upstreamName], row[gleanerName]
		fmt.Fprintf(w, "| %s | %s | %s | %s |", figure, formatValue(theirs), formatValue(own), ratio(own, theirs))
		if floor, ok := row[floorName]; ok {
			fmt.Fprintf(w, " %s | %.0f %% |\n", formatValue(floor), 100*own/floor)
			continue
		}
		fmt.Fprintln(w, " | |")
	}
}

func formatValue(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func ratio(own, theirs float64) string {
	if theirs == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", own/theirs)
}

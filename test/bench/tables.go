package main

import "fmt"

// column is a figure of deletions.
type column struct {
	name   string
	figure func(deletion) float64
	ratio  bool // to the controller by hand that does the same: more is better
}

// paces shows how fast it goes.
func (f *field) paces(servings []serving, figures map[string][]deletion) table {
	return tabulate(fmt.Sprintf("%d objects", f.finalized), servings, figures, []column{
		{name: "seconds", figure: func(d deletion) float64 { return d.seconds }},
		{name: "of them until all are marked", figure: func(d deletion) float64 { return d.marked }},
		{name: "objects/s", figure: func(d deletion) float64 { return float64(f.finalized) / d.seconds }, ratio: true},
		{name: "a backlog, objects/s", figure: func(d deletion) float64 { return d.backlog }, ratio: true},
	})
}

// costs shows what it takes.
func (f *field) costs(servings []serving, figures map[string][]deletion) table {
	return tabulate("for each object", servings, figures, []column{
		{name: "API calls", figure: func(d deletion) float64 { return d.calls }},
		{name: "events", figure: func(d deletion) float64 { return d.events }},
		{name: "processor time, ms", figure: func(d deletion) float64 { return d.cpu }},
		{name: "peak resident memory, MiB", figure: func(d deletion) float64 { return d.peak }},
		{name: "growth by the deletion, MiB", figure: func(d deletion) float64 { return d.growth }},
	})
}

// tabulate shows the median of each figure.
func tabulate(about string, servings []serving, figures map[string][]deletion, columns []column) table {
	t := table{columns: []string{about}}
	for _, c := range columns {
		t.columns = append(t.columns, c.name)
		if c.ratio {
			t.columns = append(t.columns, "of by hand")
		}
	}
	for _, v := range servings {
		row := []string{v.name}
		for _, c := range columns {
			value := medianOf(figures[v.name], c.figure)
			row = append(row, show(value))
			switch {
			case c.ratio && v.beside != v.name:
				row = append(row, fmt.Sprintf("%.0f %%", 100*value/medianOf(figures[v.beside], c.figure)))
			case c.ratio:
				row = append(row, "")
			}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

func medianOf(deletions []deletion, figure func(deletion) float64) float64 {
	var values []float64
	for _, d := range deletions {
		values = append(values, figure(d))
	}
	return median(values)
}

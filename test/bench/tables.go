package main

import (
	"fmt"
	"slices"
)

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
			value := medianIn(figures[v.name], c.figure)
			row = append(row, show(value))
			switch {
			case c.ratio && v.beside != v.name:
				row = append(row, fmt.Sprintf("%.0f %%", 100*value/medianIn(figures[v.beside], c.figure)))
			case c.ratio:
				row = append(row, "")
			}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// costsBeside shows what it takes to delete owners one after the other, beside what it
// takes without Gleaner.
func costsBeside(affairs []affair, figures map[string][]besides) table {
	t := table{columns: []string{"one by one", "API calls", "extra", "of all, Gleaner's", "events", "webhook calls", "p50, ms", "extra", "p99, ms", "extra"}}
	p := func(of int) func([]besides) float64 {
		return func(d []besides) float64 { return percentile(allDelays(d), of) }
	}
	calls := func(d besides) float64 { return d.inTurn.calls }
	for _, a := range affairs {
		ours, theirs := figures[a.name], figures[a.beside]
		row := []string{a.name, show(medianIn(ours, calls)), extra(a, medianIn(ours, calls)-medianIn(theirs, calls))}
		for _, figure := range []func(besides) float64{
			func(d besides) float64 { return d.inTurn.gleaner },
			func(d besides) float64 { return d.inTurn.events },
			func(d besides) float64 { return d.inTurn.webhooks },
		} {
			row = append(row, show(medianIn(ours, figure)))
		}
		for _, delay := range []func([]besides) float64{p(50), p(99)} {
			row = append(row, show(delay(ours)), extra(a, delay(ours)-delay(theirs)))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// atOnceBeside shows how fast owners go that are deleted at once.
func (f *field) atOnceBeside(affairs []affair, figures map[string][]besides) table {
	t := table{columns: []string{fmt.Sprintf("%d at once", f.owners), "owners/s", "of alone", "API calls", "extra", "of all, Gleaner's", "events", "webhook calls"}}
	pace := func(d besides) float64 { return d.perSecond }
	calls := func(d besides) float64 { return d.together.calls }
	for _, a := range affairs {
		ours, theirs := figures[a.name], figures[a.beside]
		row := []string{a.name, show(medianIn(ours, pace)), "", show(medianIn(ours, calls)), extra(a, medianIn(ours, calls)-medianIn(theirs, calls))}
		if a.beside != a.name {
			row[2] = fmt.Sprintf("%.0f %%", 100*medianIn(ours, pace)/medianIn(theirs, pace))
		}
		for _, figure := range []func(besides) float64{
			func(d besides) float64 { return d.together.gleaner },
			func(d besides) float64 { return d.together.events },
			func(d besides) float64 { return d.together.webhooks },
		} {
			row = append(row, show(medianIn(ours, figure)))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// extra shows what an affair takes more than the one that it stands beside.
func extra(a affair, value float64) string {
	if a.beside == a.name {
		return ""
	}
	return fmt.Sprintf("%+.2f", value)
}

func medianIn[T any](of []T, figure func(T) float64) float64 {
	var values []float64
	for _, d := range of {
		values = append(values, figure(d))
	}
	return median(values)
}

func allDelays(of []besides) []float64 {
	var all []float64
	for _, d := range of {
		all = append(all, d.delays...)
	}
	return all
}

// percentile returns the value below which so many in a hundred are; of none it is 0.
func percentile(values []float64, of int) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[len(values)*of/100]
}

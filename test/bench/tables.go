package main

import (
	"fmt"
	"slices"
)

// column is a figure of deletions.
type column struct {
	name   string
	figure func(deletion) float64
	ratio  bool // to the equivalent handwritten controller: more is better
}

// speedTable shows the speed of deletions.
func (f finalizerBench) speedTable(servings []serving, figures map[string][]deletion) table {
	return medianTable(fmt.Sprintf("%d objects", f.finalized), servings, figures, []column{
		{name: "seconds", figure: func(d deletion) float64 { return d.seconds }},
		{name: "of them until all are marked", figure: func(d deletion) float64 { return d.marked }},
		{name: "objects/s", figure: func(d deletion) float64 { return float64(f.finalized) / d.seconds }, ratio: true},
		{name: "a backlog, objects/s", figure: func(d deletion) float64 { return d.backlog }, ratio: true},
	})
}

// resourceTable shows the resource usage of deletions.
func (f finalizerBench) resourceTable(servings []serving, figures map[string][]deletion) table {
	return medianTable("for each object", servings, figures, []column{
		{name: "API calls", figure: func(d deletion) float64 { return d.calls }},
		{name: "events", figure: func(d deletion) float64 { return d.events }},
		{name: "processor time, ms", figure: func(d deletion) float64 { return d.cpu }},
		{name: "peak resident memory, MiB", figure: func(d deletion) float64 { return d.peak }},
		{name: "growth by the deletion, MiB", figure: func(d deletion) float64 { return d.growth }},
	})
}

// medianTable shows the median of each figure.
func medianTable(about string, servings []serving, figures map[string][]deletion, columns []column) table {
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
			row = append(row, formatValue(value))
			switch {
			case c.ratio && v.baseline != v.name:
				row = append(row, fmt.Sprintf("%.0f %%", 100*value/medianIn(figures[v.baseline], c.figure)))
			case c.ratio:
				row = append(row, "")
			}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// costTable compares the cost of deleting owners sequentially with and
// without Gleaner.
func costTable(scenarios []scenario, figures map[string][]scenarioFigures) table {
	t := table{columns: []string{"one by one", "API calls", "extra", "of all, Gleaner's", "events", "webhook calls", "p50, ms", "extra", "p99, ms", "extra"}}
	p := func(of int) func([]scenarioFigures) float64 {
		return func(d []scenarioFigures) float64 { return percentile(allDelays(d), of) }
	}
	calls := func(d scenarioFigures) float64 { return d.sequential.calls }
	for _, a := range scenarios {
		own, theirs := figures[a.name], figures[a.baseline]
		row := []string{a.name, formatValue(medianIn(own, calls)), difference(a, medianIn(own, calls)-medianIn(theirs, calls))}
		for _, figure := range []func(scenarioFigures) float64{
			func(d scenarioFigures) float64 { return d.sequential.gleaner },
			func(d scenarioFigures) float64 { return d.sequential.events },
			func(d scenarioFigures) float64 { return d.sequential.webhooks },
		} {
			row = append(row, formatValue(medianIn(own, figure)))
		}
		for _, delay := range []func([]scenarioFigures) float64{p(50), p(99)} {
			row = append(row, formatValue(delay(own)), difference(a, delay(own)-delay(theirs)))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// parallelTable compares the speed of deleting owners in parallel.
func (f companionBench) parallelTable(scenarios []scenario, figures map[string][]scenarioFigures) table {
	t := table{columns: []string{fmt.Sprintf("%d at once", f.owners), "owners/s", "of alone", "API calls", "extra", "of all, Gleaner's", "events", "webhook calls"}}
	pace := func(d scenarioFigures) float64 { return d.perSecond }
	calls := func(d scenarioFigures) float64 { return d.parallel.calls }
	for _, a := range scenarios {
		own, theirs := figures[a.name], figures[a.baseline]
		row := []string{a.name, formatValue(medianIn(own, pace)), "", formatValue(medianIn(own, calls)), difference(a, medianIn(own, calls)-medianIn(theirs, calls))}
		if a.baseline != a.name {
			row[2] = fmt.Sprintf("%.0f %%", 100*medianIn(own, pace)/medianIn(theirs, pace))
		}
		for _, figure := range []func(scenarioFigures) float64{
			func(d scenarioFigures) float64 { return d.parallel.gleaner },
			func(d scenarioFigures) float64 { return d.parallel.events },
			func(d scenarioFigures) float64 { return d.parallel.webhooks },
		} {
			row = append(row, formatValue(medianIn(own, figure)))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// difference shows the difference to the equivalent scenario without Gleaner.
func difference(a scenario, value float64) string {
	if a.baseline == a.name {
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

func allDelays(of []scenarioFigures) []float64 {
	var all []float64
	for _, d := range of {
		all = append(all, d.delays...)
	}
	return all
}

// percentile returns the value below which a percentage of the values are, or 0 for no values.
func percentile(values []float64, of int) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[len(values)*of/100]
}

package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// sample is the operator's resource usage at one time.
type sample struct {
	at     time.Duration // since the start
	values map[string]float64
	heap   string // heap profile
}

// measure is a figure in samples.
type measure struct {
	name   string
	metric string  // of the operator; "": measured otherwise
	unit   float64 // divisor

	// relative and absolute limit how much the median at the end may exceed that
	// after warming up; the larger one counts. If both are 0, there is no limit.
	relative, absolute float64
}

const (
	series  = "metric series"
	watches = "watches"
)

const mib = 1 << 20

// measures are the measures in reports. The limits are above the differences between two
// halves of a quiet run.
var measures = []measure{
	{"resident memory, MiB", "process_resident_memory_bytes", mib, 0.10, 16},
	{"heap in use, MiB", "go_memstats_heap_inuse_bytes", mib, 0.10, 6},
	{"goroutines", "go_goroutines", 1, 0.10, 20},
	{"open files", "process_open_fds", 1, 0.10, 10},
	{series, "", 1, 0.05, 50},
	{watches, "", 1, 0.10, 5},
	{"heap objects, thousands", "go_memstats_heap_objects", 1000, 0.10, 60},
	{"records, thousands", "gleaner_records", 1000, 0, 0},
	{"transcripts, MiB", "gleaner_record_transcript_bytes", mib, 0, 0},
	{"objects in the graph", `gleaner_graph_objects{state="seen"}`, 1, 0, 0},
	{"owners named only", `gleaner_graph_objects{state="named"}`, 1, 0, 0},
	{"oldest work, s", "gleaner_queue_oldest_seconds", 1, 0, 0},
}

// sample takes samples until ctx ends.
func (s *testbed) sample(ctx context.Context, r *result) error {
	began := time.Now()
	for pause(ctx, ctx, s.every) {
		if err := s.operator.ended(); err != nil {
			return err
		}
		taken, err := s.operator.readMetrics(context.WithoutCancel(ctx))
		if err != nil {
			return fmt.Errorf("take a sample: %w", err)
		}
		taken.at = time.Since(began)
		taken.values[watches] = float64(s.proxy.Watching(""))
		r.samples = append(r.samples, taken)
		s.logf("%s: %.0f MiB resident, %.1f MiB heap, %.0f goroutines, %.0f files, %.0f in the graph; %d waves, %d objects, %d faults",
			taken.at.Round(time.Second), taken.values[measures[0].name], taken.values[measures[1].name], taken.values[measures[2].name],
			taken.values[measures[3].name], taken.values["objects in the graph"], s.finished.Load(), s.made.Load(), s.faults.Load())
	}
	return nil
}

// growth compares a measure after warming up and at the end.
type growth struct {
	measure
	first, last float64 // medians
	perHour     float64
}

// within reports whether the growth is within the limit.
func (g growth) within(slack float64) bool {
	if g.relative == 0 && g.absolute == 0 {
		return true
	}
	return g.last-g.first <= slack*max(g.relative*g.first, g.absolute)
}

// growths compares the second quarter of the time with the last one: in the first,
// caches and records fill up, and released modules are kept for five minutes.
func growths(samples []sample) []growth {
	var list []growth
	n := len(samples)
	first, last := samples[n/4:n/2], samples[n-n/4:]
	if len(first) == 0 || len(last) == 0 {
		return nil
	}
	between := middleTime(last) - middleTime(first)
	for _, m := range measures {
		g := growth{measure: m, first: medianOf(first, m.name), last: medianOf(last, m.name)}
		g.perHour = (g.last - g.first) / between.Hours()
		list = append(list, g)
	}
	return list
}

func middleTime(samples []sample) time.Duration { return samples[len(samples)/2].at }

func medianOf(samples []sample, name string) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, s.values[name])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// result is the result of a soak test.
type result struct {
	settings
	samples                            []sample
	made, waves, faults, policyChanges int64
	attacks                            int64
	problems                           []string
	slack                              float64 // factor for the limits; 0 means 1
}

func (r *result) passed() bool {
	grown := growths(r.samples)
	return len(r.problems) == 0 && len(grown) != 0 && !slices.ContainsFunc(grown, func(g growth) bool { return !g.within(max(r.slack, 1)) })
}

// print writes the result as Markdown.
func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s, %s as %s: %d waves with a total of %d objects, %d faults, %d changes of policies, %d attacks\n\n",
		time.Now().UTC().Format(time.DateOnly), r.length, r.collector, r.waves, r.made, r.faults, r.policyChanges, r.attacks)
	fmt.Fprintln(w, "| median | after warming up | at the end | an hour | bound | |\n|---|---:|---:|---:|---:|---|")
	for _, g := range growths(r.samples) {
		bound, verdict := "", ""
		if g.relative != 0 {
			bound, verdict = fmt.Sprintf("%+.1f", max(r.slack, 1)*max(g.relative*g.first, g.absolute)), "flat"
		}
		if !g.within(max(r.slack, 1)) {
			verdict = "GROWS"
		}
		fmt.Fprintf(w, "| %s | %.1f | %.1f | %+.1f | %s | %s |\n", g.name, g.first, g.last, g.perHour, bound, verdict)
	}
	fmt.Fprintln(w)
	for _, wrong := range r.problems {
		fmt.Fprintf(w, "* WRONG: %s\n", wrong)
	}
	if len(r.problems) == 0 {
		fmt.Fprintln(w, "* no object was lost or stuck")
	}
}

// save writes samples and a chart into the folder.
func (r *result) save() error {
	file, err := os.Create(filepath.Join(r.folder, "samples.csv"))
	if err != nil {
		return err
	}
	defer file.Close()
	w := csv.NewWriter(file)
	row := []string{"seconds"}
	for _, m := range measures {
		row = append(row, m.name)
	}
	for _, s := range r.samples {
		if err := w.Write(row); err != nil {
			return err
		}
		row = []string{strconv.FormatFloat(s.at.Seconds(), 'f', 1, 64)}
		for _, m := range measures {
			row = append(row, strconv.FormatFloat(s.values[m.name], 'f', 2, 64))
		}
	}
	if err := w.Write(row); err != nil {
		return err
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	for name, at := range map[string]int{"heap-before.pprof": len(r.samples) / 2, "heap-after.pprof": len(r.samples) - 1} {
		if at < 0 || at >= len(r.samples) {
			continue
		}
		if err := os.WriteFile(filepath.Join(r.folder, name), []byte(r.samples[at].heap), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(r.folder, "chart.svg"), []byte(r.chart()), 0o644)
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// recordFile has the last recorded run.
const recordFile = "test/bench/recorded.json"

// minChange is the factor from which a figure counts as changed. On a machine with two cores,
// two runs of the same program can differ by a third.
const minChange = 1.35

// record is what is kept of a run: figures that depend little on the machine, which are ratios
// and calls for each object, by their names.
type record struct {
	Date    string             `json:"date"`
	Machine string             `json:"machine"`
	Figures map[string]float64 `json:"figures"`
}

// comparable returns the figures of a report that can be compared with those of another run.
func (r *report) comparable() map[string]float64 {
	all := map[string]float64{}
	for _, figure := range r.figures {
		row := r.values[figure]
		own := row[gleanerName]
		switch {
		case strings.Contains(figure, "calls/object"):
			all[figure] = own
		case row[upstreamName] != 0:
			all[figure+", of "+upstreamName] = own / row[upstreamName]
		}
		if floor := row[floorName]; floor != 0 {
			all[figure+", of "+floorName] = own / floor
		}
	}
	for _, t := range r.tables {
		t.addComparable(all)
	}
	for _, note := range r.notes {
		if end := strings.LastIndex(note, ": "); end >= 0 { // NAME: 1200 (85 % of no policy)
			_, percentage, _ := strings.Cut(note[end:], "(")
			addPercentage(all, note[:end], percentage)
		}
	}
	return all
}

// addComparable adds percentages and calls. A column of percentages has no name of its own: it is
// about the column before.
func (t table) addComparable(all map[string]float64) {
	for _, row := range t.rows {
		for i := 1; i < len(row); i++ {
			name := t.columns[0] + ", " + row[0] + ", " + t.columns[i]
			if strings.HasPrefix(t.columns[i], "of ") {
				name = t.columns[0] + ", " + row[0] + ", " + t.columns[i-1] + ", " + t.columns[i]
			}
			if value, err := strconv.ParseFloat(row[i], 64); err == nil && t.columns[i] == "API calls" {
				all[name] = value
			}
			addPercentage(all, name, row[i])
		}
	}
}

// addPercentage adds the percentage that a text begins with, if there is one.
func addPercentage(all map[string]float64, name, text string) {
	number, _, ok := strings.Cut(text, " %")
	if !ok {
		return
	}
	if value, err := strconv.ParseFloat(number, 64); err == nil {
		all[name] = value / 100
	}
}

// readRecord returns the recorded run; nil if there is none.
func readRecord(file string) (*record, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the recorded run: %w", err)
	}
	recorded := &record{}
	if err := json.Unmarshal(data, recorded); err != nil {
		return nil, fmt.Errorf("read the recorded run %s: %w", file, err)
	}
	return recorded, nil
}

// write replaces the figures of a recorded run that were measured again.
func (r record) write(file string) error {
	if before, err := readRecord(file); err != nil {
		return err
	} else if before != nil {
		all := maps.Clone(before.Figures)
		maps.Copy(all, r.Figures)
		r.Figures = all
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record the run: %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("record the run: %w", err)
	}
	return nil
}

// printChanges prints which figures differ from those of a recorded run.
func (r record) printChanges(w io.Writer, now map[string]float64) {
	t := table{columns: []string{"changed since " + r.Date, "then", "now", "ratio"}}
	same := 0
	for _, name := range slices.Sorted(maps.Keys(now)) {
		then, ok := r.Figures[name]
		switch {
		case !ok:
		case changed(then, now[name]):
			t.rows = append(t.rows, []string{name, formatValue(then), formatValue(now[name]), ratio(now[name], then)})
		default:
			same++
		}
	}
	fmt.Fprintf(w, "\nCompared with the run of %s (%s): %d figures are the same within a factor of %.2f, %d are not.\n", r.Date, r.Machine, same, minChange, len(t.rows))
	if len(t.rows) != 0 {
		t.print(w)
	}
}

func changed(then, now float64) bool {
	low, high := min(then, now), max(then, now)
	return high > low*minChange && high-low >= 0.05 // calls for each object are often nearly zero
}

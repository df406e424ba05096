package replay

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/backtest"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

// A report is what a backtest prints.
type report struct {
	printer.Document `json:",inline"`
	Decisions        int `json:"decisions"` // that are about policies
	Unchanged        int `json:"unchanged"`
	Different        int `json:"different"`
	NotEvaluable     int `json:"notEvaluable"`

	Differences []difference   `json:"differences"`
	Reasons     map[string]int `json:"reasons,omitempty"` // of differences, as "then -> now"
	Missing     map[string]int `json:"missing,omitempty"` // what the records of NotEvaluable decisions lack
	Notes       []string       `json:"notes,omitempty"`
}

// A difference is a decision that would have been different.
type difference struct {
	Time     time.Time         `json:"time"`
	Object   record.Object     `json:"object"`
	Recorded backtest.Decision `json:"recorded"`
	Now      backtest.Decision `json:"now"`
}

// run evaluates all records.
func run(ctx context.Context, b *backtest.Backtest, found replicas.Records) (*report, error) {
	r := &report{Document: printer.DocumentOf("BacktestReport"), Differences: []difference{}, Reasons: map[string]int{}, Missing: map[string]int{}}
	for _, e := range found.Entries {
		result, err := b.Evaluate(ctx, e)
		if err != nil {
			return nil, err
		}
		switch result.Outcome {
		case backtest.Unchanged:
			r.Unchanged++
		case backtest.Different:
			r.Different++
			r.Differences = append(r.Differences, difference{e.Time, e.Object, result.Recorded, result.Now})
			r.Reasons[result.Recorded.Action+" -> "+result.Now.Action]++
		case backtest.NotEvaluable:
			r.NotEvaluable++
			r.Missing[result.Missing]++
		}
	}
	r.Decisions = r.Unchanged + r.Different + r.NotEvaluable
	if found.Older {
		r.Notes = append(r.Notes, "There are older records, above --limit.")
	}
	return r, nil
}

// note adds what a reader has to know about the policies.
func (r *report) note(all []*policies.Policy, notFetched map[string]string) {
	for _, p := range all {
		if !p.Enforce {
			r.Notes = append(r.Notes, fmt.Sprintf("%s is in Monitor mode: it was evaluated as if it enforced.", p))
		}
		if why, is := notFetched[p.String()]; is {
			r.Notes = append(r.Notes, fmt.Sprintf("%s could not be evaluated: %s", p, why))
		}
	}
}

func (r *report) write(out io.Writer, format string) error {
	if format != "" {
		return printer.Write(out, format, r)
	}
	printer.Fprintf(out, "%s: %d unchanged, %d different, %d not evaluable\n",
		printer.Count(r.Decisions, "decision", "decisions"), r.Unchanged, r.Different, r.NotEvaluable)
	for _, note := range r.Notes {
		printer.Fprintln(out, note)
	}
	s := printer.NewSection(out, printer.PaletteFor(out))
	printCounts(s, "Different, by recorded and new decision", r.Reasons)
	if len(r.Differences) != 0 {
		s.Title("Decisions that would have been different")
		t := printer.Table{Header: []string{"TIME", "OBJECT", "RECORDED", "NOW"}}
		for _, d := range r.Differences {
			t.Add(printer.Cell{Text: d.Time.UTC().Format(time.RFC3339), Color: printer.Faint}, printer.Cell{Text: d.Object.String()},
				printer.Cell{Text: printer.OneLine(d.Recorded.String())}, printer.Cell{Text: printer.OneLine(d.Now.String()), Color: printer.Caution})
		}
		if err := printer.PrintIndented(out, t, s.Palette); err != nil {
			return err
		}
	}
	printCounts(s, "Not evaluable, by what the records do not contain", r.Missing)
	return nil
}

func printCounts(s printer.Section, title string, counts map[string]int) {
	if len(counts) == 0 {
		return
	}
	s.Title("%s", title)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		printer.Fprintf(s.Out, "  %6d  %s\n", counts[name], name)
	}
}

// exitError returns the exit code.
func (r *report) exitError(requireEvaluable bool) error {
	switch {
	case r.Different != 0:
		return fmt.Errorf("%d of %s would have been different", r.Different, printer.Count(r.Decisions, "decision", "decisions"))
	case requireEvaluable && r.NotEvaluable != 0:
		return exit.Error{Code: exitNotEvaluable, Err: fmt.Errorf("%d of %s can't be evaluated", r.NotEvaluable, printer.Count(r.Decisions, "decision", "decisions"))}
	default:
		return nil
	}
}

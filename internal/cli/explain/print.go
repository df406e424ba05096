package explain

import (
	"io"
	"strconv"
	"time"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// stateColors are the colors of the states of objects.
var stateColors = map[State]printer.Color{
	Exists: printer.Good, Terminating: printer.Caution, Deleted: printer.Bad, NotFound: printer.Bad,
}

// maxShownRecords is the maximum number of records in the text output: the newest ones.
const maxShownRecords = 20

func showExplanation(out io.Writer, p printer.Palette, e Explanation) error {
	printer.Fprintf(out, "%s  %s\n\n%s\n", p.Paint(printer.Strong, e.Object.String()), p.Paint(stateColors[e.State], string(e.State)), e.Summary)
	s := printer.NewSection(out, p)
	if len(e.Finalizers) != 0 {
		if e.State == Terminating {
			s.Title("Finalizers")
		} else {
			s.Title("Finalizers, which take effect on deletion")
		}
		for _, h := range e.Finalizers {
			if e.State != Terminating {
				h.Advice = "" // nothing waits for it yet
			}
			showHolder(s, h)
		}
	}
	if err := showOwners(s, e); err != nil {
		return err
	}
	if err := showRemovals(s, e.Removals); err != nil {
		return err
	}
	showRecords(s, e)
	if err := showEvents(s, e.Events); err != nil {
		return err
	}
	if len(e.Unreachable)+len(e.Unknown) != 0 {
		s.Title("Unknown")
		for _, m := range e.Unreachable {
			printer.Fprintf(out, "  %s could not be queried: %s\n", m.Replica, printer.OneLine(m.Reason))
		}
		for _, u := range e.Unknown {
			printer.Fprintf(out, "  %s\n", printer.OneLine(u))
		}
	}
	return nil
}

func showHolder(s printer.Section, h finalizers.Finalizer) {
	printer.Fprintf(s.Out, "  %s\n", s.Palette.Paint(printer.Caution, h.Name))
	s.Field("owner", h.Owner, "")
	addedBy := h.AddedBy
	if addedBy != "" && h.AddedAt != nil {
		addedBy += " at " + printer.Moment(h.AddedAt)
	}
	s.Field("added by", addedBy, "")
	s.Field("waits for", h.WaitsFor, "")
	s.Field("reason", h.Reason, "")
	s.Field("message", h.Message, "")
	s.Field("last error", h.Error, printer.Bad)
	s.Field("stuck since", printer.Moment(h.Since), "")
	s.Field("attempts", attempts(h), "")
	s.Field("next retry", nextRetry(h), "")
	s.Field("deadline", printer.Moment(h.Deadline), "")
	s.Field("to do", h.Advice, printer.Hint)
}

// attempts returns the number of attempts; "" if there are none.
func attempts(h finalizers.Finalizer) string {
	if h.Attempts == 0 {
		return ""
	}
	return strconv.Itoa(h.Attempts)
}

// nextRetry returns the time of the next retry, or "due" instead of a time in the past.
func nextRetry(h finalizers.Finalizer) string {
	if h.RetryDue {
		return "due"
	}
	return printer.Moment(h.NextRetry)
}

func showOwners(s printer.Section, e Explanation) error {
	if len(e.Owners) != 0 {
		s.Title("Owners")
		t := printer.Table{Header: []string{"OWNER", "STANDING", "WHY"}}
		for _, o := range e.Owners {
			t.Add(printer.Cell{Text: o.Object.String()}, printer.Cell{Text: o.Status}, printer.Cell{Text: printer.OneLine(o.Message)})
		}
		if err := printer.PrintIndented(s.Out, t, s.Palette); err != nil {
			return err
		}
	}
	if len(e.WaitsFor) == 0 || e.State != Terminating {
		return nil
	}
	s.Title("Blocking dependents: %d", e.Blocking)
	t := printer.Table{Header: []string{"DEPENDENT", "STATE"}}
	for _, b := range e.WaitsFor {
		t.Add(printer.Cell{Text: b.Object.String()}, printer.Cell{Text: b.State})
	}
	return printer.PrintIndented(s.Out, t, s.Palette)
}

func showRemovals(s printer.Section, removals []v1alpha1.NodeRemoval) error {
	if len(removals) == 0 {
		return nil
	}
	s.Title("Removed from the node by retention")
	t := printer.Table{Header: []string{"REMOVED", "TYPE", "NAME", "POLICY", "REASON"}}
	for _, r := range removals {
		t.Add(printer.Cell{Text: printer.Moment(r.Time), Color: printer.Faint}, printer.Cell{Text: string(r.Type)}, printer.Cell{Text: printer.OneLine(r.Name)},
			printer.Cell{Text: r.Policy}, printer.Cell{Text: r.Reason})
	}
	return printer.PrintIndented(s.Out, t, s.Palette)
}

func showRecords(s printer.Section, e Explanation) {
	if e.RecordsSince == nil && len(e.Records) == 0 {
		return
	}
	if e.RecordsSince == nil {
		s.Title("Records")
	} else {
		s.Title("Records since %s", printer.Moment(e.RecordsSince))
	}
	if len(e.Records) == 0 {
		printer.Fprintln(s.Out, "  none")
	}
	if more := len(e.Records) - maxShownRecords; more > 0 {
		printer.Fprintf(s.Out, "  %d older ones are not shown; use -o yaml to see them\n", more)
	}
	for _, entry := range e.Records[max(0, len(e.Records)-maxShownRecords):] {
		printer.Fprintf(s.Out, "  %s  %s\n", s.Palette.Paint(printer.Faint, entry.Time.UTC().Format(time.RFC3339)), printer.OneLine(entry.String()))
		if entry.Error != "" {
			s.Field("error", entry.Error, printer.Bad)
		}
	}
}

func showEvents(s printer.Section, events []Event) error {
	if len(events) == 0 {
		return nil
	}
	s.Title("Events")
	t := printer.Table{Header: []string{"LAST SEEN", "TYPE", "REASON", "FROM", "MESSAGE"}}
	for _, e := range events {
		color := printer.Color("")
		if e.Type == "Warning" {
			color = printer.Caution
		}
		t.Add(printer.Cell{Text: printer.Moment(&e.Time), Color: printer.Faint}, printer.Cell{Text: e.Type, Color: color}, printer.Cell{Text: e.Reason},
			printer.Cell{Text: e.From}, printer.Cell{Text: printer.OneLine(e.Message)})
	}
	return printer.PrintIndented(s.Out, t, s.Palette)
}

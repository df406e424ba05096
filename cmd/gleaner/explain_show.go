package main

import (
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/explain"
	holder "github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

// stateColors are how the states of objects are shown.
var stateColors = map[explain.State]kubectl.Color{
	explain.There: kubectl.Good, explain.BeingDeleted: kubectl.Unsure, explain.Gone: kubectl.Bad, explain.NotFound: kubectl.Bad,
}

// mostRecords is how many records are shown to people; the newest are.
const mostRecords = 20

func showExplanation(out io.Writer, p kubectl.Palette, e explain.Explanation) error {
	kubectl.Fprintf(out, "%s  %s\n\n%s\n", p.Paint(kubectl.Strong, e.Object.String()), p.Paint(stateColors[e.State], string(e.State)), e.Summary)
	s := section{out, p}
	if len(e.Holders) != 0 {
		if e.State == explain.BeingDeleted {
			s.title("Finalizers")
		} else {
			s.title("Finalizers, for when it is deleted")
		}
		for _, h := range e.Holders {
			if e.State != explain.BeingDeleted {
				h.Do = "" // nothing waits for it
			}
			showHolder(s, h)
		}
	}
	if err := showOwners(s, e); err != nil {
		return err
	}
	showRecords(s, e)
	if err := showEvents(s, e.Events); err != nil {
		return err
	}
	if len(e.Unasked)+len(e.Unknown) != 0 {
		s.title("Not known")
		for _, m := range e.Unasked {
			kubectl.Fprintf(out, "  %s could not be asked: %s\n", m.Replica, oneLine(m.Why))
		}
		for _, u := range e.Unknown {
			kubectl.Fprintf(out, "  %s\n", oneLine(u))
		}
	}
	return nil
}

func showHolder(s section, h holder.Holder) {
	kubectl.Fprintf(s.out, "  %s\n", s.palette.Paint(kubectl.Unsure, h.Finalizer))
	s.field("whose", h.Owner, "")
	placed := h.PlacedBy
	if placed != "" && h.PlacedAt != nil {
		placed += ", at " + moment(h.PlacedAt)
	}
	s.field("put there by", placed, "")
	s.field("waits for", h.Waits, "")
	s.field("reason", h.Reason, "")
	s.field("says", h.Message, "")
	s.field("last error", h.Error, kubectl.Bad)
	s.field("stuck since", moment(h.Since), "")
	s.field("next retry", nextRetry(h), "")
	s.field("deadline", moment(h.Deadline), "")
	s.field("to do", h.Do, kubectl.Calm)
}

// nextRetry is when a holder tries again. A time in the past would look as if it had.
func nextRetry(h holder.Holder) string {
	if h.RetryDue {
		return "due"
	}
	return moment(h.NextRetry)
}

func moment(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func showOwners(s section, e explain.Explanation) error {
	if len(e.Owners) != 0 {
		s.title("Owners")
		t := kubectl.Table{Header: []string{"OWNER", "STANDING", "WHY"}}
		for _, o := range e.Owners {
			t.Add(kubectl.Cell{Text: o.Object.String()}, kubectl.Cell{Text: o.Standing}, kubectl.Cell{Text: oneLine(o.Because)})
		}
		if err := indented(s.out, t, s.palette); err != nil {
			return err
		}
	}
	if len(e.WaitsFor) == 0 || e.State != explain.BeingDeleted {
		return nil
	}
	s.title("Dependents that block it: %d", e.Blocking)
	t := kubectl.Table{Header: []string{"DEPENDENT", "STATE"}}
	for _, b := range e.WaitsFor {
		t.Add(kubectl.Cell{Text: b.Object.String()}, kubectl.Cell{Text: b.State})
	}
	return indented(s.out, t, s.palette)
}

func showRecords(s section, e explain.Explanation) {
	if e.RecordsSince == nil && len(e.Records) == 0 {
		return
	}
	if e.RecordsSince == nil {
		s.title("Records")
	} else {
		s.title("Records since %s", moment(e.RecordsSince))
	}
	if len(e.Records) == 0 {
		kubectl.Fprintln(s.out, "  none")
	}
	if more := len(e.Records) - mostRecords; more > 0 {
		kubectl.Fprintf(s.out, "  %d older ones are left out: -o yaml has them\n", more)
	}
	for _, entry := range e.Records[max(0, len(e.Records)-mostRecords):] {
		kubectl.Fprintf(s.out, "  %s  %s\n", s.palette.Paint(kubectl.Faint, entry.Time.UTC().Format(time.RFC3339)), oneLine(entry.String()))
		if entry.Error != "" {
			s.field("error", entry.Error, kubectl.Bad)
		}
	}
}

func showEvents(s section, events []explain.Event) error {
	if len(events) == 0 {
		return nil
	}
	s.title("Events")
	t := kubectl.Table{Header: []string{"LAST SEEN", "TYPE", "REASON", "FROM", "MESSAGE"}}
	for _, e := range events {
		color := kubectl.Color("")
		if e.Type == "Warning" {
			color = kubectl.Unsure
		}
		t.Add(kubectl.Cell{Text: moment(&e.Time), Color: kubectl.Faint}, kubectl.Cell{Text: e.Type, Color: color}, kubectl.Cell{Text: e.Reason},
			kubectl.Cell{Text: e.From}, kubectl.Cell{Text: oneLine(e.Message)})
	}
	return indented(s.out, t, s.palette)
}

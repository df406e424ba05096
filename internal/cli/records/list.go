package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var errNoOperator = errors.New("read records: no replica of the operator was found: set --endpoint, or pass --archive LOCATION to read its store directly")

// A list is what gleaner records prints.
type list struct {
	printer.Document `json:",inline"`
	Items            []record.Entry `json:"items"` // oldest first

	// Since is when the records begin, if that is known.
	Since *time.Time `json:"since,omitempty"`

	// Older is set if there are older records, above --limit.
	Older bool `json:"older,omitempty"`

	Unreachable []replicas.Unreachable `json:"unreachable,omitempty"` // what could not be read
}

func listOf(found replicas.Records) list {
	items := []record.Entry{}
	for _, e := range found.Entries {
		items = append(items, e.WithoutExchanges())
	}
	return list{Document: printer.DocumentOf("RecordList"), Items: items, Since: found.Since, Older: found.Older, Unreachable: found.Unreachable}
}

// missing returns the error that records are missing, if some could not be read.
func missing(unreachable []replicas.Unreachable) error {
	var all []error
	for _, u := range unreachable {
		all = append(all, fmt.Errorf("records are missing: %s: %s", u.Replica, u.Reason))
	}
	return errors.Join(all...)
}

func (l list) write(out io.Writer, format string) error {
	switch format {
	case "json", "yaml":
		return printer.Write(out, format, l)
	case "name":
		known := map[string]struct{}{}
		for _, e := range l.Items {
			name := nameOf(e.Object)
			if _, is := known[name+e.Object.Namespace]; !is {
				printer.Fprintln(out, name)
			}
			known[name+e.Object.Namespace] = struct{}{}
		}
		return nil
	}
	if len(l.Items) == 0 {
		printer.Fprintln(out, "No records found."+l.begin())
		return nil
	}
	if err := tableOf(l.Items, format == "wide").Write(out, printer.PaletteFor(out)); err != nil {
		return err
	}
	if l.Older {
		printer.Fprintf(out, "There are older records: use --limit to list more.\n")
	}
	return nil
}

// begin returns when the records begin, as a sentence.
func (l list) begin() string {
	if l.Since == nil {
		return ""
	}
	return " The records begin at " + l.Since.UTC().Format(time.RFC3339) + "."
}

func tableOf(items []record.Entry, wide bool) *printer.Table {
	t := &printer.Table{Header: []string{"TIME", "NAMESPACE", "OBJECT", "ACTION", "REASON", "POLICY", "WOULD", "MESSAGE"}}
	if wide {
		t.Header = append(t.Header, "RESULT", "CASCADE", "UID", "OWNERS")
	}
	for _, e := range items {
		t.Add(row(e, wide)...)
	}
	return t
}

var actionColors = map[record.Action]printer.Color{record.Delete: printer.Bad, record.Propagate: printer.Bad, record.DropReferences: printer.Good}

func row(e record.Entry, wide bool) []printer.Cell {
	action := string(e.Action)
	if e.Detail != "" && (e.Action == record.Delete || e.Action == record.Propagate) {
		action += " (" + e.Detail + ")"
	}
	cells := []printer.Cell{
		{Text: e.Time.UTC().Format(time.RFC3339), Color: printer.Faint}, {Text: e.Object.Namespace}, {Text: nameOf(e.Object)},
		{Text: action, Color: actionColors[e.Action]}, {Text: string(e.Reason)}, {Text: e.Policy}, {Text: would(e), Color: printer.Caution}, {Text: message(e)},
	}
	if wide {
		var owners []string
		for _, o := range e.Owners {
			owners = append(owners, nameOf(o.Object)+" ("+o.Status+")")
		}
		for _, text := range []string{e.Result, string(e.Root), string(e.Object.UID), strings.Join(owners, ", ")} {
			cells = append(cells, printer.Cell{Text: text})
		}
	}
	return cells
}

// would returns what policies in Monitor mode would have decided.
func would(e record.Entry) string {
	var texts []string
	for _, a := range e.Would() {
		decision := a.Decision
		if a.Fault != "" {
			decision = "fault"
		}
		texts = append(texts, decision+" by "+a.Policy)
	}
	return strings.Join(texts, ", ")
}

// message returns the error, or why it was decided.
func message(e record.Entry) string {
	if e.Error != "" {
		return e.Error
	}
	if e.Message != "" {
		return e.Message
	}
	var lost []string
	for _, link := range e.Chain {
		lost = append(lost, link.Owner.Object.String()+" is "+strings.ToLower(link.Owner.Status))
	}
	return strings.Join(lost, ", since ")
}

// nameOf returns an object as kubectl accepts it.
func nameOf(o record.Object) string {
	gk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind()
	return strings.ToLower(gk.String()) + "/" + o.Name
}

// followInterval is the interval of queries for new records, and overlap how much older ones than the
// newest may still come: they are stored, or arrive from another replica, some time after they were made.
const followInterval, overlap = 2 * time.Second, time.Minute

// followRecords lists records, and then new ones until ctx ends. What can't be read is retried.
func (o *options) followRecords(ctx context.Context, s replicas.Selection, out, errOut io.Writer) error {
	known := map[string]time.Time{}
	failure := ""
	for first := true; ; first = false {
		found, err := o.read(ctx, s)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was interrupted, which is how it ends
		}
		if err != nil && first {
			return err
		}
		if err = errors.Join(err, missing(found.Unreachable)); err != nil && err.Error() != failure {
			printer.Fprintf(errOut, "%v, retrying\n", err)
		}
		failure = ""
		if err != nil {
			failure = err.Error()
		}
		var added []record.Entry
		for _, e := range found.Entries {
			if _, is := known[e.Key()]; !is {
				known[e.Key()] = e.Time
				added = append(added, e)
			}
		}
		if err := o.writeAdded(out, added); err != nil {
			return err
		}
		s.Since, s.Limit = nextSince(s.Since, known), 0
		if !wait(ctx, followInterval) {
			return nil
		}
	}
}

// nextSince returns from when on to read next, and forgets what is older.
func nextSince(since time.Time, known map[string]time.Time) time.Time {
	for _, at := range known {
		if start := at.Add(-overlap); start.After(since) {
			since = start
		}
	}
	for key, at := range known {
		if at.Before(since) {
			delete(known, key)
		}
	}
	return since
}

// writeAdded writes records as they come: documents one after another, or lines of a table.
func (o *options) writeAdded(out io.Writer, added []record.Entry) error {
	switch {
	case len(added) == 0:
		return nil
	case o.Output == "json" || o.Output == "yaml":
		for _, e := range added {
			if o.Output == "yaml" {
				printer.Fprintln(out, "---")
			}
			if err := printer.Write(out, o.Output, e.WithoutExchanges()); err != nil {
				return err
			}
		}
		return nil
	case o.Output == "name":
		return list{Items: added}.write(out, o.Output)
	}
	for _, e := range added {
		if o.Output == "wide" {
			printer.Fprintf(out, "%s  %s  %s\n", e.Time.UTC().Format(time.RFC3339), e.Object.UID, e.String())
		} else {
			printer.Fprintf(out, "%s  %s\n", e.Time.UTC().Format(time.RFC3339), e.String())
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

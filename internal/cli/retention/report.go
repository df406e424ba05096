package retention

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/retainer/preview"
)

// maxLater is the number of objects that are removed later and that are shown as text.
const maxLater = 20

// document is the output document of gleaner preview retention.
type document struct {
	printer.Document `json:",inline"`
	Policies         []policy `json:"policies"`
	Objects          []object `json:"objects"`

	// Unread lists what could not be read, with the reason.
	Unread []string `json:"unread,omitempty"`
}

type policy struct {
	Policy   string `json:"policy"`
	Mode     string `json:"mode"`
	Selected int    `json:"selected"`
	Removed  int    `json:"removed"` // now
	Later    int    `json:"later"`
	Kept     int    `json:"kept"`
	Unknown  int    `json:"unknown,omitempty"`
}

type object struct {
	Object  record.Object   `json:"object"`
	Policy  string          `json:"policy"`
	Mode    string          `json:"mode"`
	Outcome preview.Outcome `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	Time    *metav1.Time    `json:"time,omitempty"` // when it is removed later
}

// document returns what is shown: of other namespaces only with -A.
func (o *options) document(all []*policyset.Retention, r preview.Report, namespace string) document {
	d := document{Document: printer.DocumentOf("RetentionPreview"), Policies: []policy{}, Objects: []object{}, Unread: r.Unread}
	at := map[*policyset.Retention]int{}
	for _, p := range all {
		if o.shows(p) {
			at[p] = len(d.Policies)
			d.Policies = append(d.Policies, policy{Policy: p.Policy.String(), Mode: modeOf(p)})
		}
	}
	for _, found := range r.Objects {
		i, shown := at[found.Policy]
		if !shown || !o.AllNamespaces && found.Namespace != namespace && found.Namespace != "" {
			continue
		}
		of := &d.Policies[i]
		of.Selected++
		switch found.Outcome {
		case preview.Removed:
			of.Removed++
		case preview.Later:
			of.Later++
		case preview.Unknown:
			of.Unknown++
		default:
			of.Kept++
		}
		if found.Outcome == preview.Kept && !o.kept {
			continue
		}
		d.Objects = append(d.Objects, objectOf(found))
	}
	return d
}

func modeOf(p *policyset.Retention) string {
	if p.Policy.Enforce {
		return "Enforce"
	}
	return "Monitor"
}

func objectOf(found preview.Object) object {
	apiVersion, kind := found.Kind.ToAPIVersionAndKind()
	shown := object{
		Object: record.Object{APIVersion: apiVersion, Kind: kind, Namespace: found.Namespace, Name: found.Name, UID: found.UID, ResourceVersion: found.ResourceVersion},
		Policy: found.Policy.Policy.String(), Mode: modeOf(found.Policy), Outcome: found.Outcome, Reason: string(found.Reason), Message: found.Message,
	}
	switch found.Outcome {
	case preview.Removed:
		shown.Message = found.Policy.Limit(found.Reason)
	case preview.Later:
		at := metav1.NewTime(found.Due).Rfc3339Copy()
		shown.Time, shown.Reason = &at, ""
	case preview.Unknown:
		shown.Message = found.Unknown
	default:
		if found.KeptBy != "" {
			shown.Reason, shown.Message = "KeptByPolicy", found.KeptBy
		}
	}
	return shown
}

func (o *options) write(out io.Writer, d document, now time.Time) error {
	switch o.Output {
	case "json", "yaml":
		return printer.Write(out, o.Output, d)
	case "name":
		for _, x := range d.Objects {
			if x.Outcome == preview.Removed {
				gk := schema.FromAPIVersionAndKind(x.Object.APIVersion, x.Object.Kind).GroupKind()
				printer.Fprintln(out, strings.ToLower(gk.String())+"/"+x.Object.Name)
			}
		}
		return nil
	}
	p := printer.PaletteFor(out)
	if len(d.Policies) == 0 {
		printer.Fprintln(out, "No retention policies found: use -A for those of all namespaces, or -f for one in a file.")
		printer.WriteLines(out, p, "Could not be read:", d.Unread)
		return nil
	}
	if err := d.writePolicies(out, p); err != nil {
		return err
	}
	for _, part := range parts {
		if err := d.writePart(out, p, part, o.Output == "wide", now); err != nil {
			return err
		}
	}
	printer.WriteLines(out, p, "Could not be read:", d.Unread)
	return nil
}

// writePolicies writes the policies with their numbers of objects.
func (d document) writePolicies(out io.Writer, p printer.Palette) error {
	t := printer.Table{Header: []string{"POLICY", "MODE", "SELECTED", "REMOVED NOW", "LATER", "KEPT"}}
	unknown := slices.ContainsFunc(d.Policies, func(x policy) bool { return x.Unknown != 0 })
	if unknown {
		t.Header = append(t.Header, "UNKNOWN")
	}
	for _, x := range d.Policies {
		row := cells(x.Policy, x.Mode, fmt.Sprint(x.Selected), fmt.Sprint(x.Removed), fmt.Sprint(x.Later), fmt.Sprint(x.Kept))
		if unknown {
			row = append(row, cells(fmt.Sprint(x.Unknown))...)
		}
		t.Add(row...)
	}
	return t.Write(out, p)
}

// part is a part of the text.
type part struct {
	outcome preview.Outcome
	title   string
	header  []string
	most    int // objects that are shown; 0: all
}

var parts = []part{
	{preview.Removed, "Removed now:", []string{"NAMESPACE", "OBJECT", "POLICY", "REASON", "LIMIT"}, 0},
	{preview.Unknown, "Unknown, since policies with the hook retain could not be evaluated:", []string{"NAMESPACE", "OBJECT", "POLICY", "REASON", "MESSAGE"}, 0},
	{preview.Later, "Removed next, if nothing changes:", []string{"NAMESPACE", "OBJECT", "POLICY", "IN", "TIME"}, maxLater},
	{preview.Kept, "Kept:", []string{"NAMESPACE", "OBJECT", "POLICY", "REASON", "MESSAGE"}, 0},
}

// writePart writes a part, unless it is empty.
func (d document) writePart(out io.Writer, p printer.Palette, part part, wide bool, now time.Time) error {
	t, more := printer.Table{Header: part.header}, 0
	for _, x := range d.Objects {
		switch {
		case x.Outcome != part.outcome:
		case part.most != 0 && len(t.Rows) == part.most && !wide:
			more++
		default:
			t.Add(row(x, now)...)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	printer.NewSection(out, p).Title("%s", part.title)
	if err := printer.PrintIndented(out, t, p); err != nil {
		return err
	}
	if more != 0 {
		printer.Fprintf(out, "  and %d more: use -o wide to show all\n", more)
	}
	return nil
}

func row(x object, now time.Time) []printer.Cell {
	name := x.Object.Kind + "/" + x.Object.Name
	policy := x.Policy
	if x.Mode == "Monitor" {
		policy += " (Monitor)"
	}
	if x.Time != nil {
		return cells(x.Object.Namespace, name, policy, duration.HumanDuration(max(x.Time.Sub(now), 0)), x.Time.UTC().Format(time.RFC3339))
	}
	return cells(x.Object.Namespace, name, policy, x.Reason, x.Message)
}

func cells(texts ...string) []printer.Cell {
	list := make([]printer.Cell, len(texts))
	for i, text := range texts {
		list[i].Text = text
	}
	return list
}

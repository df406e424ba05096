package preview

import (
	"cmp"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// deletionPreview is the output document of gleaner preview delete.
type deletionPreview struct {
	printer.Document `json:",inline"`

	Target    record.Object `json:"target"`
	Cascade   string        `json:"cascade"`
	Collector string        `json:"collector"`

	Summary summary         `json:"summary"`
	Objects []previewObject `json:"objects"`

	// Unread lists the types that could not be read, with the reason.
	Unread []string `json:"unread,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// summary counts objects by outcome.
type summary struct {
	outcomes `json:",inline"`
	ByKind   []kindOutcomes `json:"byKind"`
}

type outcomes struct {
	Goes    int `json:"goes"`
	Waits   int `json:"waits"`
	Stays   int `json:"stays"`
	Unknown int `json:"unknown"`

	// WaitsThenStays counts the waiting objects that stay afterwards.
	WaitsThenStays int `json:"waitsThenStays,omitempty"`
}

type kindOutcomes struct {
	Kind  string `json:"kind"`
	Group string `json:"group,omitempty"`
	outcomes
}

// deletions returns how many objects would or might be deleted, now or later.
func (o outcomes) deletions() int { return o.Goes + o.Waits + o.Unknown - o.WaitsThenStays }

func (o *outcomes) add(object preview.Object) {
	switch object.Outcome {
	case preview.Goes:
		o.Goes++
	case preview.Waits:
		o.Waits++
	case preview.Stays:
		o.Stays++
	case preview.Unknown:
		o.Unknown++
	}
	if object.Outcome == preview.Waits && object.Then == preview.Stays {
		o.WaitsThenStays++
	}
}

type previewObject struct {
	record.Object `json:",inline"`

	Parent  string `json:"parent,omitempty"` // UID of the parent in the tree
	Outcome string `json:"outcome"`
	Then    string `json:"then,omitempty"` // of a waiting object
	After   string `json:"after,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Policy  string `json:"policy,omitempty"`

	Dependents       string `json:"dependents,omitempty"`
	DependentsPolicy string `json:"dependentsPolicy,omitempty"`

	Terminating bool                `json:"terminating,omitempty"`
	Evaluations []record.Evaluation `json:"asked,omitempty"`

	depth int
}

func newDocument(a *input.Input, p *preview.Preview) *deletionPreview {
	d := &deletionPreview{Document: printer.DocumentOf("DeletionPreview"), Cascade: p.Cascade, Notes: p.Notes}
	d.Target = p.Objects[0].Object
	byKind := map[schema.GroupKind]*kindOutcomes{}
	for _, object := range p.Objects {
		d.Objects = append(d.Objects, newPreviewObject(object))
		gk := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind).GroupKind()
		if byKind[gk] == nil {
			byKind[gk] = &kindOutcomes{Kind: gk.Kind, Group: gk.Group}
		}
		byKind[gk].add(object)
		d.Summary.add(object)
	}
	for _, counts := range byKind {
		d.Summary.ByKind = append(d.Summary.ByKind, *counts)
	}
	slices.SortFunc(d.Summary.ByKind, func(a, b kindOutcomes) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Group, b.Group))
	})
	d.Unread = survey.Lines(a.Survey.Unread)
	return d
}

func newPreviewObject(o preview.Object) previewObject {
	shown := previewObject{
		Object: o.Object, Parent: string(o.Parent), Outcome: o.Outcome.String(), Reason: o.Reason, Message: o.Message, Policy: o.Policy,
		Dependents: o.Dependents, DependentsPolicy: o.DependentsPolicy, Terminating: o.Terminating, Evaluations: o.Evaluations, depth: o.Depth,
	}
	if o.Then != preview.Unknown {
		shown.Then = o.Then.String()
	}
	if o.After > 0 {
		shown.After = preview.FormatDuration(o.After)
	}
	return shown
}

// writeDeletions writes the names of objects that would or might be deleted, one per line.
func writeDeletions(out io.Writer, d *deletionPreview) error {
	for _, o := range d.Objects {
		if o.Outcome == preview.Stays.String() || o.Then == preview.Stays.String() {
			continue
		}
		if _, err := printer.Fprintln(out, nameOf(o.Object)); err != nil {
			return err
		}
	}
	return nil
}

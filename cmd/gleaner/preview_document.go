package main

import (
	"cmp"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// deletionPreview is the document of gleaner preview delete.
type deletionPreview struct {
	kubectl.Document `json:",inline"`

	Target    record.Object `json:"target"`
	Cascade   string        `json:"cascade"`
	Collector string        `json:"collector"`

	Summary summary         `json:"summary"`
	Objects []previewObject `json:"objects"`

	// Unread are the types whose objects are not known, with the reason.
	Unread []string `json:"unread,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// summary counts objects by what becomes of them.
type summary struct {
	outcomes `json:",inline"`
	ByKind   []kindOutcomes `json:"byKind"`
}

type outcomes struct {
	Goes    int `json:"goes"`
	Waits   int `json:"waits"`
	Stays   int `json:"stays"`
	Unknown int `json:"unknown"`

	// WaitsThenStays of those that wait are to stay after that.
	WaitsThenStays int `json:"waitsThenStays,omitempty"`
}

type kindOutcomes struct {
	Kind  string `json:"kind"`
	Group string `json:"group,omitempty"`
	outcomes
}

// going is how many would go, at once or later, or might.
func (o outcomes) going() int { return o.Goes + o.Waits + o.Unknown - o.WaitsThenStays }

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

	Parent  string `json:"parent,omitempty"` // the UID of what it is below
	Outcome string `json:"outcome"`
	Then    string `json:"then,omitempty"` // of one that waits
	After   string `json:"after,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Policy  string `json:"policy,omitempty"`

	Dependents       string `json:"dependents,omitempty"`
	DependentsPolicy string `json:"dependentsPolicy,omitempty"`

	Terminating bool           `json:"terminating,omitempty"`
	Asked       []record.Asked `json:"asked,omitempty"`

	depth int
}

func (o *previewOptions) document(a *asked, p *preview.Preview) *deletionPreview {
	d := &deletionPreview{Document: kubectl.DocumentOf("DeletionPreview"), Cascade: p.Cascade, Collector: o.collector, Notes: p.Notes}
	d.Target = p.Objects[0].Object
	byKind := map[schema.GroupKind]*kindOutcomes{}
	for _, object := range p.Objects {
		d.Objects = append(d.Objects, shownObject(object))
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
	d.Unread = survey.Lines(a.survey.Unread)
	return d
}

func shownObject(o preview.Object) previewObject {
	shown := previewObject{
		Object: o.Object, Parent: string(o.Parent), Outcome: o.Outcome.String(), Reason: o.Reason, Message: o.Message, Policy: o.Policy,
		Dependents: o.Dependents, DependentsPolicy: o.DependentsPolicy, Terminating: o.Terminating, Asked: o.Asked, depth: o.Depth,
	}
	if o.Then != preview.Unknown {
		shown.Then = o.Then.String()
	}
	if o.After > 0 {
		shown.After = preview.Round(o.After)
	}
	return shown
}

// writeGoing names what would go, or might, one a line, as -o name does.
func writeGoing(out io.Writer, d *deletionPreview) error {
	for _, o := range d.Objects {
		if o.Outcome == preview.Stays.String() || o.Then == preview.Stays.String() {
			continue
		}
		if _, err := kubectl.Fprintln(out, nameOf(o.Object)); err != nil {
			return err
		}
	}
	return nil
}

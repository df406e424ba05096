package page

import (
	"github.com/gleaner-dev/gleaner/internal/cli/stuck"
)

// MaxGroupRows is the maximum number of objects of a group that are shown.
const MaxGroupRows = 200

// Stuck is the content of the page Stuck.
type Stuck struct {
	stuck.Report
	LongerThan string // as it was selected, such as 5m
	Failed     string // why there is nothing to show
}

func (Stuck) template() string { return "stuck" }

// Shown returns the objects of a group that are shown.
func (Stuck) Shown(g stuck.Group) []stuck.Object {
	return g.Objects[:min(len(g.Objects), MaxGroupRows)]
}

// URL returns the address of the page about an object.
func (Stuck) URL(o stuck.Object) string { return ObjectURL(o.Object) }

// OwnersURL returns the address of the page about an object with many owners.
func (Stuck) OwnersURL(o stuck.ManyOwners) string { return ObjectURL(o.Object) }

// Thresholds are offered for the time that objects have been terminating.
func (Stuck) Thresholds() []string { return []string{"30s", "5m", "1h", "24h"} }

// Message is the content of a page that says one thing.
type Message struct {
	Heading, Text string
	Login         bool   // with a form for a token
	Next          string // the address to go to after that
	Failed        string // why the last token was not taken
}

func (Message) template() string { return "message" }

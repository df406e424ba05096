package nodeagent

import (
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// Kind is what is removed.
type Kind string

// What is removed.
const (
	Image     Kind = "Image"
	Container Kind = "Container"
)

// Removal is something that was removed, or was not.
type Removal struct {
	noderetention.Item
	Kind   Kind
	Policy string
	Time   time.Time
	Err    error // nil: it was removed
}

// Report is what an agent saw and did. Pointers are nil for what it has not seen yet.
type Report struct {
	Time     time.Time // of the last round
	Policies []noderetention.Policy

	RuntimeAnswered bool  // in the last round
	RuntimeErr      error // why it did not
	UsesRead        bool  // what Pods need was read in the last round
	UsesErr         error // why it was not
	UsageErr        error // why the usage is not known

	Images     *Images
	Containers *Containers
	Usage      *retain.Usage // after the last round of images

	// HighPercent is the lowest threshold of policies that are enforced; 0: there is none. Short is nil if the usage was below
	// it after the last round of images, or is not known.
	HighPercent int
	Short       *Shortage

	Removals []Removal // of this round, in their order
	Freed    int64     // bytes that removals of images of this round freed, as the file system reports it

	usesUnread, usageUnread error
	usesRead                bool
}

// Images are the images of the node in the last round. Results are without what was removed.
type Images struct {
	Total, InUse, Refused int
	Results               []noderetention.Result
}

// Containers are the containers of the node in the last round. Results are without what was removed.
type Containers struct {
	Exited  int
	Results []noderetention.Result
}

// Shortage says that a round did not free enough.
type Shortage struct {
	UsedPercent, HighPercent int
	Freed                    int64 // bytes, as the file system reports it
}

// begin begins a round.
func (r *Report) begin(now time.Time, policies []noderetention.Policy) {
	r.usesRead, r.usesUnread = false, nil
	r.Time, r.Policies, r.Removals, r.Freed = now, slices.Clone(policies), nil, 0
}

// end ends it.
func (r *Report) end(err error) {
	r.RuntimeAnswered, r.RuntimeErr = err == nil, err
	r.UsesRead, r.UsesErr, r.UsageErr = r.usesRead && r.usesUnread == nil, r.usesUnread, r.usageUnread
}

func (r *Report) clone() Report {
	c := *r
	c.Removals = slices.Clone(r.Removals)
	return c
}

func (r *Report) containers(n noderetention.Node, results []noderetention.Result) {
	c := &Containers{Results: results}
	for _, one := range n.Containers {
		if one.Exited {
			c.Exited++
		}
	}
	r.Containers = c
}

func (r *Report) images(n noderetention.Node, inUse int, results []noderetention.Result) {
	r.Images = &Images{Total: len(n.Images), InUse: inUse, Results: results}
}

// spare notes that an image that was due stays.
func (r *Report) spare(id string) {
	counted := *r.Images
	counted.Results = without(counted.Results, id)
	r.Images = &counted
}

// refused notes that the runtime did not remove an image.
func (r *Report) refused() {
	counted := *r.Images
	counted.Refused++
	r.Images = &counted
}

// usage notes the usage before and after a round of images.
func (r *Report) usage(before, after *retain.Usage, high int) {
	r.Usage, r.Short, r.HighPercent = after, nil, high
	if high > 100 {
		r.HighPercent = 0
	}
	if before == nil || after == nil {
		return
	}
	if slices.ContainsFunc(r.Removals, func(d Removal) bool { return d.Kind == Image && d.Err == nil }) {
		r.Freed = max(after.Available-before.Available, 0)
	}
	if used := UsedPercent(*after); used >= high {
		r.Short = &Shortage{UsedPercent: used, HighPercent: high, Freed: r.Freed}
	}
}

// done notes an attempt. What is gone is due no longer.
func (r *Report) done(removal Removal) {
	r.Removals = append(r.Removals, removal)
	switch {
	case removal.Err != nil:
	case removal.Kind == Image:
		counted := *r.Images
		counted.Results = without(counted.Results, removal.ID)
		counted.Total--
		r.Images = &counted
	default:
		counted := *r.Containers
		counted.Results = without(counted.Results, removal.ID)
		counted.Exited--
		r.Containers = &counted
	}
}

// without returns results without the removal of something.
func without(results []noderetention.Result, id string) []noderetention.Result {
	results = slices.Clone(results)
	for at := range results {
		left := slices.Clone(results[at].Removals)
		results[at].Removals = slices.DeleteFunc(left, func(i noderetention.Item) bool { return i.ID == id })
	}
	return results
}

// sameNames reports whether an image has the same names as before, in any order.
func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

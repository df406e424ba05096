package page

import (
	"net/url"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// MaxEntries is the maximum number of archived objects on a page: the newest ones.
const MaxEntries = 500

// ArchiveQuery is what a person selected on the page Archive. Its zero value selects the newest entries.
type ArchiveQuery struct {
	Namespace, Kind, Name string
	Within                time.Duration // 0: any time
}

// ParseArchiveQuery reads the query of the page's URL. What it can't read selects everything.
func ParseArchiveQuery(v url.Values) ArchiveQuery {
	within, err := time.ParseDuration(v.Get("within"))
	if err != nil {
		within = 0
	}
	return ArchiveQuery{Kind: strings.TrimSpace(v.Get("kind")), Name: strings.TrimSpace(v.Get("name")), Within: max(within, 0)}
}

// Query returns the entries that are selected at a time.
func (q ArchiveQuery) Query(now time.Time) archive.Query {
	a := archive.Query{Kind: q.Kind, Name: q.Name}
	if q.Namespace != "" {
		a.Namespace = &q.Namespace
	}
	if q.Within > 0 {
		a.Since = now.Add(-q.Within)
	}
	return a
}

// Selected reports whether a period is the selected one.
func (q ArchiveQuery) Selected(period string) bool {
	d, err := time.ParseDuration(period)
	return err == nil && d == q.Within
}

// Archive is the content of the page Archive.
type Archive struct {
	Query   ArchiveQuery
	Entries []archive.Header // the newest first
	More    bool             // there are older ones
	Failed  string           // why there is nothing to show
}

func (Archive) template() string { return "archive" }

// Periods are offered for how long ago objects were archived.
func (Archive) Periods() []string { return []string{"1h", "24h", "168h"} }

// URL returns the address of the page about an entry.
func (Archive) URL(h archive.Header) string {
	return "/archive/entry?" + url.Values{"id": {h.ID}}.Encode()
}

// Archived is the content of the page about an archived object.
type Archived struct {
	Header     archive.Header
	Live       bool   // an object of its name exists
	Diff       string // of the archived object and that one; empty: they are equal, or it could not be read
	Manifest   string // empty: it is not shown
	Unread     string // why the object could not be read
	CanRestore bool
	Result     string // of a restore, or of trying one
	Failed     string // why that was not done, or there is nothing to show
}

func (Archived) template() string { return "archived" }

// Object returns the object for its links.
func (a Archived) Object() record.Object {
	o := a.Header.Object
	return record.Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// URL returns the address of the page about the object.
func (a Archived) URL() string { return ObjectURL(a.Object()) }

// Command returns the command that restores it.
func (a Archived) Command() string { return "gleaner restore --uid " + string(a.Header.Object.UID) }

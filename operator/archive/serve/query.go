package serve

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

// Values returns the parameters for a page of the headers that a query selects. Position is the
// Continue of the page before; empty: the first page.
func Values(q archive.Query, position string) url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"uid": string(q.UID), "root": string(q.Root), "kind": q.Kind, "name": q.Name,
		"since": formatTime(q.Since), "before": formatTime(q.Before), "continue": position,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	for name, value := range map[string]*string{"group": q.Group, "namespace": q.Namespace} {
		if value != nil { // "" is the core group, or no namespace
			v.Set(name, *value)
		}
	}
	return v
}

// EntryValues returns the parameters for the body of an entry.
func EntryValues(h archive.Header) url.Values {
	return url.Values{"uid": {string(h.Object.UID)}, "time": {formatTime(h.Time)}, "id": {h.ID}}
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// A request is a request for a page.
type request struct {
	selection archive.Query
	after     entry // the last entry of the page before; the zero entry: the first page
	limit     int
}

// An entry is the position of an entry in the archive.
type entry struct {
	uid  types.UID
	time time.Time
	id   string
}

// query selects what was not served with the pages before, and the last of what was.
func (r request) query() archive.Query {
	q := r.selection
	if end := r.after.time.Add(1); r.after.id != "" && (q.Before.IsZero() || end.Before(q.Before)) {
		q.Before = end
	}
	return q
}

// served reports whether an entry was on a page before: of those of the same time, the ones with
// the greatest IDs come first.
func (r request) served(h archive.Header) bool {
	return r.after.id != "" && cmp.Or(r.after.time.Compare(h.Time), strings.Compare(r.after.id, h.ID)) <= 0
}

func positionOf(h archive.Header) string { return formatTime(h.Time) + "," + h.ID }

func parseRequest(v url.Values) (request, error) {
	if err := checkSizes(v); err != nil {
		return request{}, err
	}
	r := request{limit: maxPage, selection: archive.Query{
		UID: types.UID(v.Get("uid")), Root: types.UID(v.Get("root")), Kind: v.Get("kind"), Name: v.Get("name"),
		Group: optional(v, "group"), Namespace: optional(v, "namespace"),
	}}
	var errs [3]error
	r.selection.Since, errs[0] = debug.ParseTime(v, "since")
	r.selection.Before, errs[1] = debug.ParseTime(v, "before")
	if position := v.Get("continue"); position != "" {
		text, id, _ := strings.Cut(position, ",")
		at, err := time.Parse(time.RFC3339Nano, text)
		if r.after = (entry{time: at, id: id}); err != nil || id == "" {
			errs[2] = fmt.Errorf("invalid continue %q: use that of the page before", position)
		}
	}
	if text := v.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return request{}, fmt.Errorf("invalid limit %q: use a number of headers, at least 1", text)
		}
		r.limit = min(limit, maxPage)
	}
	return r, errors.Join(errs[:]...)
}

func parseEntry(v url.Values) (entry, error) {
	if err := checkSizes(v); err != nil {
		return entry{}, err
	}
	at, err := debug.ParseTime(v, "time")
	if err != nil {
		return entry{}, err
	}
	e := entry{types.UID(v.Get("uid")), at, v.Get("id")}
	if e.uid == "" || e.id == "" || e.time.IsZero() {
		return entry{}, errors.New("uid=, time= and id= are required: use those of a header")
	}
	return e, nil
}

func checkSizes(v url.Values) error {
	for name, values := range v {
		for _, value := range values {
			if len(value) > maxFieldBytes {
				return fmt.Errorf("%.32s has more than %d bytes", name, maxFieldBytes)
			}
		}
	}
	return nil
}

func optional(v url.Values, name string) *string {
	if !v.Has(name) {
		return nil
	}
	value := v.Get(name)
	return &value
}

package debug

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// A recordQuery is a query for records.
type recordQuery struct {
	record.Query
	paged         bool      // since= is set
	since, before time.Time // zero: no limit
	limit         int
	exchanges     bool
}

// maxParameterBytes is the maximum size of a parameter.
const maxParameterBytes = 1024

// Values returns the parameters for a page of the records that a query selects since a time.
// Before may be zero.
func Values(q record.Query, since, before time.Time) url.Values {
	v := url.Values{"since": {since.UTC().Format(time.RFC3339Nano)}}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	for prefix, object := range map[string]record.ObjectQuery{"": q.Object, "owner-": q.Owner} {
		set(prefix+"uid", string(object.UID))
		set(prefix+"kind", object.Kind)
		set(prefix+"name", object.Name)
		if object.Group != nil { // "" is the core group
			v.Set(prefix+"group", *object.Group)
		}
		if object.Namespace != nil {
			v.Set(prefix+"namespace", *object.Namespace)
		}
	}
	set("policy", q.Policy)
	set("cascade", string(q.Root))
	set("reason", q.Reason)
	if q.Would {
		v.Set("would", "true")
	}
	if !before.IsZero() {
		v.Set("before", before.UTC().Format(time.RFC3339Nano))
	}
	return v
}

func parseRecordQuery(v url.Values) (q recordQuery, err error) {
	for name, values := range v {
		for _, value := range values {
			if len(value) > maxParameterBytes {
				return q, fmt.Errorf("%.32s has more than %d bytes", name, maxParameterBytes)
			}
		}
	}
	q.Query = record.Query{
		Object: objectQuery(v, ""), Owner: objectQuery(v, "owner-"),
		Policy: v.Get("policy"), Root: types.UID(v.Get("cascade")), Reason: v.Get("reason"),
	}
	const all = 1 << 30
	q.limit, q.paged = all, v.Has("since")
	if !q.paged && q.Object.Name != "" && q.Object.Namespace == nil {
		q.Object.Namespace = new(string) // of a cluster-scoped object
	}
	var errs [5]error
	q.since, errs[0] = ParseTime(v, "since")
	q.before, errs[1] = ParseTime(v, "before")
	q.exchanges, errs[2] = parseBool(v, "exchanges")
	q.Would, errs[3] = parseBool(v, "would")
	if text := v.Get("limit"); text != "" {
		if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 {
			errs[4] = fmt.Errorf("invalid limit %q: use a number of records, at least 1", text)
		}
	}
	return q, errors.Join(errs[:]...)
}

func objectQuery(v url.Values, prefix string) record.ObjectQuery {
	return record.ObjectQuery{
		UID: types.UID(v.Get(prefix + "uid")), Kind: v.Get(prefix + "kind"), Name: v.Get(prefix + "name"),
		Group: optional(v, prefix+"group"), Namespace: optional(v, prefix+"namespace"),
	}
}

func optional(v url.Values, name string) *string {
	if !v.Has(name) {
		return nil
	}
	value := v.Get(name)
	return &value
}

// ParseTime parses a time in a query; zero if there is none.
func ParseTime(v url.Values, name string) (time.Time, error) {
	text := v.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fmt.Errorf("invalid %s %q: use RFC 3339, such as 2026-01-02T03:04:05Z", name, text)
	}
	return t, nil
}

func parseBool(v url.Values, name string) (bool, error) {
	text := v.Get(name)
	if text == "" {
		return false, nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("invalid %s %q: use %s=true or %s=false", name, text, name, name)
	}
	return is, nil
}

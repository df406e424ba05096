package debug

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// RecordList is the response with decision records.
type RecordList struct {
	Items []record.Entry `json:"items"` // oldest first

	// Since is the start of the records: earlier decisions are missing or incomplete. Empty
	// if this replica is not the leader, and makes no decisions.
	Since *time.Time `json:"since,omitempty"`
}

// records serves decision records: uid= selects one object; name=, kind= and namespace=
// select objects by name; limit= returns the newest ones; exchanges=true includes the
// requests and verdicts of modules.
func (s Source) records(w http.ResponseWriter, r *http.Request) {
	query, err := parseRecordQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	canRead := s.ReadAccess(r)
	entries := []record.Entry{}
	for _, e := range s.Records(query.uid) {
		if query.matches(e.Object) && canRead(e.Object) {
			entries = append(entries, e)
		}
	}
	entries = entries[max(0, len(entries)-query.limit):]
	for i, e := range entries {
		if !query.exchanges {
			e = e.WithoutExchanges()
		}
		entries[i] = redact(e, canRead)
	}
	list := RecordList{Items: entries}
	if s.RecordsSince != nil {
		if since := s.RecordsSince(); !since.IsZero() {
			list.Since = &since
		}
	}
	writeJSON(w, list)
}

// A recordQuery is a query for records.
type recordQuery struct {
	uid       types.UID
	name      string // "": any
	kind      string // "": any
	namespace string // used together with name
	limit     int
	exchanges bool
}

// matches reports whether the query matches an object by kind and name.
func (w recordQuery) matches(o record.Object) bool {
	return (w.kind == "" || w.kind == o.Kind) && (w.name == "" || w.name == o.Name && w.namespace == o.Namespace)
}

func parseRecordQuery(query url.Values) (recordQuery, error) {
	const all = 1 << 30
	w := recordQuery{
		uid: types.UID(query.Get("uid")), limit: all,
		name: query.Get("name"), kind: query.Get("kind"), namespace: query.Get("namespace"),
	}
	if w.namespace != "" && w.name == "" {
		return recordQuery{}, fmt.Errorf("namespace %q requires a name: add name=, or remove namespace=", w.namespace)
	}
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return recordQuery{}, fmt.Errorf("invalid limit %q: use a number of records, at least 1", text)
		}
		w.limit = limit
	}
	if text := query.Get("exchanges"); text != "" {
		var err error
		if w.exchanges, err = strconv.ParseBool(text); err != nil {
			return recordQuery{}, fmt.Errorf("invalid exchanges %q: use exchanges=true or exchanges=false", text)
		}
	}
	return w, nil
}

// redact redacts the objects of an entry that the client may not get.
func redact(e record.Entry, canRead ReadAccess) record.Entry {
	var owners []record.Owner
	for _, o := range e.Owners {
		if canRead(o.Object) {
			owners = append(owners, o)
		}
	}
	var blockers []record.Blocker
	for _, b := range e.Blockers {
		if canRead(b.Object) {
			blockers = append(blockers, b)
		}
	}
	var chain []record.Link
	for _, link := range e.Chain {
		if !canRead(link.Owner.Object) {
			break // later links refer to this owner
		}
		chain = append(chain, link)
	}
	var intents []record.Intent
	for _, i := range e.Intents {
		if i.Object == (record.Object{}) || canRead(i.Object) {
			intents = append(intents, i)
		}
	}
	if len(owners) != len(e.Owners) || e.OwnersOmitted != 0 || !canReadExchanges(e, canRead) { // they contain the standings of all owners
		e.ExchangesWithheld = e.HasTranscript()
		e = e.WithoutExchanges()
	}
	if len(owners) != len(e.Owners) || len(chain) != len(e.Chain) || e.Action == record.Unblock {
		e.Detail, e.Error, e.Message = "", "", "" // they may name redacted objects or a dependent
	}
	e.Owners, e.Chain, e.Blockers, e.Intents = owners, chain, blockers, intents
	return e
}

// canReadExchanges reports whether a client may get all objects in an entry's exchanges: a
// module receives what its own service account may read, and its intents name objects.
func canReadExchanges(e record.Entry, canRead ReadAccess) bool {
	for _, asked := range e.Evaluations {
		for _, exchange := range asked.Exchanges {
			for _, i := range exchange.Verdict.Intents {
				if target, ok := record.TargetOf(i); ok && !canRead(target) {
					return false
				}
			}
			for _, result := range exchange.Request.Results {
				if !canReadResult(result, canRead) {
					return false
				}
			}
		}
	}
	return true
}

func canReadResult(r hostabi.Result, canRead ReadAccess) bool {
	if r.Object != nil && !canRead(objectOf(*r.Object)) {
		return false
	}
	if r.List == nil {
		return true
	}
	for _, item := range r.List.Items {
		if !canRead(objectOf(item)) {
			return false
		}
	}
	return true
}

func objectOf(o hostabi.Object) record.Object {
	return record.Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
}

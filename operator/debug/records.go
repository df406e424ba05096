package debug

import (
	"net/http"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// RecordList is the response with decision records.
type RecordList struct {
	Items []record.Entry `json:"items"` // oldest first

	// Since is the start of the records: earlier decisions are missing or incomplete. Empty
	// if this replica is not the leader, and makes no decisions.
	Since *time.Time `json:"since,omitempty"`

	// Continue is the since= of the next page. Empty: this is the last one. A page may have no
	// items and still not be the last one.
	Continue *time.Time `json:"continue,omitempty"`

	// Incomplete is why stored records are missing. Empty: none are, or nothing is stored.
	Incomplete string `json:"incomplete,omitempty"`
}

// records serves decision records. Without since=, those in memory, and with uid= also those of
// that object that are stored; limit= returns the newest ones. With since=, a page of all records,
// oldest first; before= ends the period and limit= limits the page. Other parameters select
// records, see Values; exchanges=true includes the requests and verdicts of modules.
func (s Source) records(w http.ResponseWriter, r *http.Request) {
	query, err := parseRecordQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	page := s.readPage(r.Context(), query)
	canRead := s.ReadAccess(r)
	list := RecordList{Items: []record.Entry{}, Continue: page.next, Incomplete: page.incomplete, Since: s.recordsSince(r.Context(), query)}
	for _, e := range page.entries {
		if !canRead(e.Object) {
			continue
		}
		if !query.exchanges {
			e = e.WithoutExchanges()
		}
		if e = redact(e, canRead); query.Matches(e) { // not by what is redacted
			list.Items = append(list.Items, e)
		}
	}
	if !query.paged {
		list.Items = list.Items[max(0, len(list.Items)-query.limit):]
	}
	writeJSON(w, list)
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
	if len(chain) != len(e.Chain) {
		e.Root = ""
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

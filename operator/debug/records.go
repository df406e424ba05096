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

// Records is the answer to who asks for them.
type Records struct {
	Items []record.Entry `json:"items"` // from old to new

	// Since is how far back they reach: what was decided before is not here, or not
	// all of it. None: this replica does not lead, and another one decides.
	Since *time.Time `json:"since,omitempty"`
}

// records serves the decisions: with uid= those about one object, with name= and
// kind= and namespace= those about objects by that name, with limit= the newest of
// them, and with exchanges=true what modules were asked and answered.
func (s Source) records(w http.ResponseWriter, r *http.Request) {
	wish, err := wishOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	sees := s.Sight(r)
	entries := []record.Entry{}
	for _, e := range s.Records(wish.uid) {
		if wish.about(e.Object) && sees(e.Object) {
			entries = append(entries, e)
		}
	}
	entries = entries[max(0, len(entries)-wish.limit):]
	for i, e := range entries {
		if !wish.exchanges {
			e = e.WithoutExchanges()
		}
		entries[i] = hide(e, sees)
	}
	answer := Records{Items: entries}
	if s.Since != nil {
		if since := s.Since(); !since.IsZero() {
			answer.Since = &since
		}
	}
	writeJSON(w, answer)
}

// wish is which records are asked for.
type wish struct {
	uid       types.UID
	name      string // "": of any
	kind      string // "": of any
	namespace string // counts with a name
	limit     int
	exchanges bool
}

// about reports whether records of an object are asked for, as far as names go.
func (w wish) about(o record.Object) bool {
	return (w.kind == "" || w.kind == o.Kind) && (w.name == "" || w.name == o.Name && w.namespace == o.Namespace)
}

func wishOf(query url.Values) (wish, error) {
	const all = 1 << 30
	w := wish{
		uid: types.UID(query.Get("uid")), limit: all,
		name: query.Get("name"), kind: query.Get("kind"), namespace: query.Get("namespace"),
	}
	if w.namespace != "" && w.name == "" {
		return wish{}, fmt.Errorf("namespace is %q: it goes with name=, leave it out or add that", w.namespace)
	}
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return wish{}, fmt.Errorf("limit is %q: use a number of entries, from 1", text)
		}
		w.limit = limit
	}
	if text := query.Get("exchanges"); text != "" {
		var err error
		if w.exchanges, err = strconv.ParseBool(text); err != nil {
			return wish{}, fmt.Errorf("exchanges is %q: use exchanges=true or exchanges=false", text)
		}
	}
	return w, nil
}

// hide takes out of an entry the objects that the client may not see.
func hide(e record.Entry, sees Sight) record.Entry {
	var owners []record.Owner
	for _, o := range e.Owners {
		if sees(o.Object) {
			owners = append(owners, o)
		}
	}
	var blockers []record.Blocker
	for _, b := range e.WaitsFor {
		if sees(b.Object) {
			blockers = append(blockers, b)
		}
	}
	var chain []record.Link
	for _, link := range e.Chain {
		if !sees(link.Owner.Object) {
			break // what comes after is about this one
		}
		chain = append(chain, link)
	}
	var intents []record.Intent
	for _, i := range e.Intents {
		if i.Object == (record.Object{}) || sees(i.Object) {
			intents = append(intents, i)
		}
	}
	if len(owners) != len(e.Owners) || e.OwnersOmitted != 0 || !seesExchanges(e, sees) { // which tell how all owners stand
		e.ExchangesHidden = e.Converses()
		e = e.WithoutExchanges()
	}
	if len(owners) != len(e.Owners) || len(chain) != len(e.Chain) || e.Action == record.Unblock {
		e.How, e.Error, e.Because = "", "", "" // they may name the hidden ones, or a dependent
	}
	e.Owners, e.Chain, e.WaitsFor, e.Intents = owners, chain, blockers, intents
	return e
}

// seesExchanges reports whether a client may get all objects in an entry's
// transcripts: a module is shown what its own service account may read, and says
// by name what it asks for.
func seesExchanges(e record.Entry, sees Sight) bool {
	for _, asked := range e.Asked {
		for _, exchange := range asked.Exchanges {
			for _, i := range exchange.Verdict.Intents {
				if target, ok := record.TargetOf(i); ok && !sees(target) {
					return false
				}
			}
			for _, result := range exchange.Request.Results {
				if !seesResult(result, sees) {
					return false
				}
			}
		}
	}
	return true
}

func seesResult(r hostabi.Result, sees Sight) bool {
	if r.Object != nil && !sees(objectOf(*r.Object)) {
		return false
	}
	if r.List == nil {
		return true
	}
	for _, item := range r.List.Items {
		if !sees(objectOf(item)) {
			return false
		}
	}
	return true
}

func objectOf(o hostabi.Object) record.Object {
	return record.Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
}

// Package explain answers, about one object, what Kubernetes leaves open: why it
// was deleted, or why it is still here, who holds it, and what that waits for.
//
// It puts together what others have found: the object and who owns it, Gleaner's
// resources, the operator's records, and events. What could not be found out is
// said, and never taken for an answer. It reads nothing itself but in Ask, and
// writes nothing.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// State is whether an object is there.
type State string

// The states of objects.
const (
	There        State = "There"
	BeingDeleted State = "BeingDeleted"
	Gone         State = "Gone"
	NotFound     State = "NotFound" // and of which there is no record: it may have existed, or not
)

// Explanation is the answer.
type Explanation struct {
	Object  record.Object `json:"object"`
	State   State         `json:"state"`
	Summary string        `json:"summary"` // in a few sentences

	DeletedAt   *metav1.Time `json:"deletedAt,omitempty"`
	Propagation string       `json:"propagation,omitempty"` // that its finalizers tell of: Foreground or Orphan

	Owners   []record.Owner   `json:"owners,omitempty"`
	Holders  []whose.Holder   `json:"holders,omitempty"`
	WaitsFor []record.Blocker `json:"waitsFor,omitempty"` // some of the dependents that block it
	Blocking int              `json:"blocking,omitempty"` // how many there are

	Records []record.Entry `json:"records"` // from old to new
	Events  []Event        `json:"events,omitempty"`

	// RecordsSince is how far back the records reach; none: no replica that leads could be asked.
	RecordsSince *metav1.Time       `json:"recordsSince,omitempty"`
	Unasked      []replicas.Missing `json:"unasked,omitempty"` // replicas of the operator
	Unknown      []string           `json:"unknown,omitempty"` // what could not be read
}

// Event is an event about the object, from whoever has raised it.
type Event struct {
	Time    metav1.Time `json:"time"` // the last
	Type    string      `json:"type"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	From    string      `json:"from"`
	Count   int32       `json:"count,omitempty"`
}

// Found is what was found out about an object.
type Found struct {
	Object  whose.Object  // without an Object in it: it is not there
	Name    record.Object // what was asked about
	Facts   decide.Facts  // of an object that is there
	Known   bool          // there are Facts
	Book    *whose.Book
	Records replicas.Records
	Running bool // replicas of the operator were found
	Events  []Event
	Unknown []string

	Conditions []string // of a namespace that is being deleted: what is left in it
}

// Of explains what was found.
func Of(f Found) Explanation {
	e := Explanation{
		Object: f.Name, State: Gone, Records: []record.Entry{}, Events: f.Events, Unasked: f.Records.Missing,
		Unknown: append(slices.Clone(f.Book.Unread), f.Unknown...),
	}
	for _, entry := range f.Records.Entries {
		e.Records = append(e.Records, entry.WithoutExchanges())
	}
	if since := f.Records.Since; since != nil {
		at := metav1.NewTime(*since)
		e.RecordsSince = &at
	}
	if f.Object.Object == nil {
		if len(e.Records) == 0 {
			e.State = NotFound
		}
		e.Summary = e.gone(f)
		return e
	}
	if f.Known {
		e.Owners, e.WaitsFor, e.Blocking = record.OwnersOf(f.Facts), record.BlockersOf(f.Facts), f.Facts.Blocking
	}
	e.Holders = f.Book.All(f.Object)
	e.DeletedAt = f.Object.GetDeletionTimestamp()
	if e.DeletedAt == nil {
		e.State, e.Summary = There, e.there(f)
		return e
	}
	e.State = BeingDeleted
	e.Propagation = propagation(f.Object.GetFinalizers())
	for i := range e.Holders {
		e.complete(&e.Holders[i], f.Book.At)
	}
	e.Summary = e.waits(f)
	return e
}

func propagation(finalizers []string) string {
	switch {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return "Orphan"
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return "Foreground"
	default:
		return ""
	}
}

// complete adds what the newest record about a holder says.
func (e *Explanation) complete(h *whose.Holder, now time.Time) {
	entry, ok := e.newest(h.Finalizer)
	if !ok || h.Reason == whose.NoAnswer { // which is newer
		return
	}
	h.Reason = string(entry.Reason)
	h.Message = entry.Because
	if wrong[entry.Reason] {
		h.Message, h.Error = "", cmp.Or(h.Error, entry.Because)
	}
	h.Error = cmp.Or(entry.Error, h.Error)
	if h.NextRetry == nil && !h.RetryDue && entry.Until != nil {
		h.Retries(*entry.Until, now)
	}
	if h.Kind == whose.Hold && entry.Policy != "" {
		h.Owner = "Gleaner, for " + entry.Policy
		for _, asked := range entry.Asked {
			if asked.Policy == entry.Policy {
				h.Message, h.Error = asked.Reason, cmp.Or(h.Error, asked.Fault)
			}
		}
	}
}

// wrong are the reasons whose message is of something that went wrong.
var wrong = map[record.Reason]bool{
	"FinalizerFailed": true, "FinalizerAtFault": true, "FinalizerNotReady": true, "FinalizerUnmeant": true, "FinalizerCircular": true,
	"FinalizerTroubled": true, "FinalizerBlocked": true, decide.PolicyAtFault: true, decide.DependentsUnreadable: true, decide.OwnersUnreadable: true,
}

// newest is the newest record about a finalizer. What is recorded of a hold, or of
// one of garbage collection, is about the object as a whole.
func (e *Explanation) newest(finalizer string) (record.Entry, bool) {
	about := finalizer
	switch finalizer {
	case graph.Hold, metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents:
		about = ""
	}
	for _, entry := range slices.Backward(e.Records) {
		if entry.Action == record.None && entry.How == about || about == "" && entry.Action == record.Remember {
			return entry, true
		}
	}
	return record.Entry{}, false
}

// there says why an object is there that is not being deleted.
func (e *Explanation) there(f Found) string {
	var standing, unread, absent []string
	for _, o := range e.Owners {
		switch o.Standing {
		case decide.Present.String():
			standing = append(standing, o.Object.String())
		case decide.Absent.String(), decide.Waiting.String(), decide.Orphaning.String():
			absent = append(absent, o.Object.String())
		default:
			unread = append(unread, o.Object.String())
		}
	}
	last := e.said(f.Book.At)
	switch {
	case !f.Known && len(f.Object.GetOwnerReferences()) != 0:
		return "It is not being deleted. How its owners stand could not be found out."
	case len(standing) != 0:
		return "It is not being deleted: it stays as long as " + names(standing) + " does." + last
	case len(unread) != 0:
		return "It is not being deleted: " + names(unread) + " could not be read, and what was not read is not taken to be absent." + last
	case len(absent) != 0 && last != "":
		return "Its owners are gone (" + names(absent) + "), and it is still there." + last
	case len(absent) != 0:
		return "Its owners are gone (" + names(absent) + "): it is about to be collected. If it stays, see gleaner doctor for whether anybody collects."
	default:
		return "It is not being deleted. It has no owner, so garbage collection leaves it alone." + last
	}
}

// said is what the operator recorded of the object last, as a sentence.
func (e *Explanation) said(now time.Time) string {
	if len(e.Records) == 0 {
		return ""
	}
	entry := e.Records[len(e.Records)-1]
	text := fmt.Sprintf(" Gleaner recorded of it at %s: %s.", entry.Time.UTC().Format(time.RFC3339), entry)
	switch {
	case entry.Until == nil:
	case !now.IsZero() && !entry.Until.After(now):
		text += " It is due to be looked at again."
	default:
		text += fmt.Sprintf(" It looks again at %s.", entry.Until.UTC().Format(time.RFC3339))
	}
	return text
}

// waits says what an object waits for that is being deleted.
func (e *Explanation) waits(f Found) string {
	since := "It is being deleted since " + e.DeletedAt.UTC().Format(time.RFC3339)
	if len(e.Holders) == 0 {
		return since + ", and has no finalizer: " + graceful(f)
	}
	var waits []string
	for _, h := range e.Holders {
		waits = append(waits, fmt.Sprintf("%s (%s)", h.Finalizer, h.Owner))
	}
	text := since + ", and waits for " + names(waits) + "."
	if e.Blocking > 0 && e.Propagation == "Foreground" {
		text += fmt.Sprintf(" %s", blocking(e.Blocking))
	}
	return text
}

func blocking(n int) string {
	if n == 1 {
		return "One dependent blocks it."
	}
	return fmt.Sprintf("%d dependents block it.", n)
}

// graceful is what an object waits for that no finalizer holds.
func graceful(f Found) string {
	if f.Object.Kind.Kind == "Pod" && f.Object.Kind.Group == "" {
		return "the kubelet of its node has to say that its containers have ended. If that node is gone: kubectl delete --force."
	}
	if f.Object.Kind.Kind == "Namespace" && f.Object.Kind.Group == "" {
		return "what is in it has to go first." + left(f.Conditions)
	}
	return "its grace period has to pass, or somebody has just taken the last one off."
}

// left is what a namespace's conditions say of what is left in it.
func left(conditions []string) string {
	if len(conditions) == 0 {
		return " Its conditions don't say what is left: see that kube-controller-manager runs."
	}
	return " " + strings.Join(conditions, ". ") + ". gleaner stuck -n, of this namespace, says what holds that."
}

// gone says why an object is gone, or that nobody knows.
func (e *Explanation) gone(f Found) string {
	records := ofTheLast(e.Records)
	for _, entry := range slices.Backward(records) {
		if entry.Action == record.Delete && entry.Result == "Done" {
			return "It is not there. Gleaner deleted it at " + entry.Time.UTC().Format(time.RFC3339) + ": " + entry.String() + "."
		}
	}
	text := "It is not there. "
	switch {
	case !f.Running:
		return text + "No replica of the operator was found that could say whether Gleaner deleted it: name one with --endpoint."
	case len(f.Records.Asked) == 0:
		return text + "No replica of the operator could be asked whether Gleaner deleted it: see below why."
	}
	if n := len(records); n != 0 {
		last := records[n-1]
		did := "The last that Gleaner recorded of it, at "
		if last.Action == record.RemoveFinalizer && last.Reason != decide.HoldObsolete && last.Error == "" {
			did = "Gleaner let it go at "
		}
		text += did + last.Time.UTC().Format(time.RFC3339) + ": " + last.String() + ". "
	}
	text += e.noDelete()
	if len(f.Records.Missing) != 0 {
		text += " Not all replicas could be asked."
	}
	return text
}

// noDelete says since when it is known that Gleaner has not deleted an object. Of
// earlier times there are no records, and nothing is claimed.
func (e *Explanation) noDelete() string {
	const audit = "Whether it existed, and who deleted it, is in the API server's audit log."
	if e.RecordsSince == nil {
		return "Whether Gleaner deleted it is not known: the replica that leads, which has the records, could not be asked. " + audit
	}
	since := e.RecordsSince.UTC().Format(time.RFC3339)
	return "Records exist since " + since + ", and Gleaner has not deleted it since then. What was done before is not recorded. " + audit
}

// ofTheLast are the records of the object that had the name last. Another one may have
// had it before, and have gone for other reasons.
func ofTheLast(records []record.Entry) []record.Entry {
	if len(records) == 0 {
		return nil
	}
	last := records[len(records)-1].Object.UID
	return slices.DeleteFunc(slices.Clone(records), func(e record.Entry) bool { return e.Object.UID != last })
}

// names is a list as in "a, b and c".
func names(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

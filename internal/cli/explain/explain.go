// Package explain explains why an object was deleted, or why it still exists: which
// finalizers block it, and what they wait for.
//
// It combines the object and its owners, Gleaner's resources, the operator's records, and
// events. What could not be read is reported as unknown. Only Ask reads, and nothing is
// written.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// State is the state of an object.
type State string

// The states of objects.
const (
	Exists      State = "Exists"
	Terminating State = "Terminating"
	Deleted     State = "Deleted"
	NotFound    State = "NotFound" // and there is no record: it may have never existed
)

// Explanation is the output document of gleaner explain.
type Explanation struct {
	Object  record.Object `json:"object"`
	State   State         `json:"state"`
	Summary string        `json:"summary"` // a few sentences

	DeletedAt   *metav1.Time `json:"deletedAt,omitempty"`
	Propagation string       `json:"propagation,omitempty"` // according to its finalizers: Foreground or Orphan

	Owners     []record.Owner         `json:"owners,omitempty"`
	Finalizers []finalizers.Finalizer `json:"holders,omitempty"`
	WaitsFor   []record.Blocker       `json:"waitsFor,omitempty"` // some of its blocking dependents
	Blocking   int                    `json:"blocking,omitempty"` // number of blocking dependents

	// Paused are the pauses in force that cover it, if Gleaner might delete or release it.
	Paused []string `json:"paused,omitempty"`

	// Limited are the exhausted deletion budgets that select it, if its owners are gone.
	Limited []string `json:"limited,omitempty"`

	// Removals are the images and containers that retention removed from a Node last, the newest first.
	Removals []v1alpha1.NodeRemoval `json:"removals,omitempty"`

	Records []record.Entry `json:"records"` // from old to new
	Events  []Event        `json:"events,omitempty"`

	// RecordsSince is when the records begin; none: no leading replica could be queried.
	RecordsSince *metav1.Time           `json:"recordsSince,omitempty"`
	Unreachable  []replicas.Unreachable `json:"unasked,omitempty"` // replicas of the operator that could not be queried
	Unknown      []string               `json:"unknown,omitempty"` // what could not be read
}

// Event is a Kubernetes event about the object.
type Event struct {
	Time    metav1.Time `json:"time"` // of the last occurrence
	Type    string      `json:"type"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	From    string      `json:"from"`
	Count   int32       `json:"count,omitempty"`
}

// Data is the data that was read about an object.
type Data struct {
	Object        finalizers.Object // without an Object in it: not found
	Name          record.Object     // of the request
	Facts         decide.Facts      // of an existing object
	FactsKnown    bool              // Facts could be read
	Resources     *finalizers.Resources
	Records       replicas.Records
	OperatorFound bool // replicas of the operator were found
	Events        []Event
	Removals      []v1alpha1.NodeRemoval // from a Node
	Unknown       []string

	Conditions []string // of a namespace that is being deleted: its remaining content
}

// FromData returns the explanation.
func FromData(f Data) Explanation {
	e := Explanation{
		Object: f.Name, State: Deleted, Removals: f.Removals, Records: []record.Entry{}, Events: f.Events, Unreachable: f.Records.Unreachable,
		Unknown: append(slices.Clone(f.Resources.Unread), f.Unknown...),
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
		e.Summary = e.whyGone(f)
		return e
	}
	if f.FactsKnown {
		e.Owners, e.WaitsFor, e.Blocking = record.OwnersOf(f.Facts), record.BlockersOf(f.Facts), f.Facts.Blocking
	}
	e.Finalizers, e.Paused = f.Resources.DescribeAll(f.Object), f.Resources.Paused(f.Object.GetNamespace(), f.Resources.ReadAt)
	e.DeletedAt = f.Object.GetDeletionTimestamp()
	if e.DeletedAt == nil {
		e.Limited = f.Resources.Limited(f.Object)
		e.State, e.Summary = Exists, e.whyExists(f)
		return e
	}
	e.State = Terminating
	e.Propagation = propagation(f.Object.GetFinalizers())
	for i := range e.Finalizers {
		e.addNewestRecord(&e.Finalizers[i], f.Resources.ReadAt)
	}
	e.Summary = e.whyTerminating(f)
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

// addNewestRecord adds the newest record about a finalizer.
func (e *Explanation) addNewestRecord(h *finalizers.Finalizer, now time.Time) {
	entry, ok := e.newestRecord(h.Name)
	if !ok || h.Reason == finalizers.NoAnswer { // the status is newer
		return
	}
	h.Reason = string(entry.Reason)
	h.Message = entry.Message
	if errorReasons[entry.Reason] {
		h.Message, h.Error = "", cmp.Or(h.Error, entry.Message)
	}
	h.Error = cmp.Or(entry.Error, h.Error)
	if h.NextRetry == nil && !h.RetryDue && entry.NextAttempt != nil {
		h.SetRetry(*entry.NextAttempt, now)
	}
	if h.Kind == finalizers.Hold && entry.Policy != "" {
		h.Owner = "Gleaner, for " + entry.Policy
		for _, evaluation := range entry.Evaluations {
			if evaluation.Policy == entry.Policy {
				h.Message, h.Error = evaluation.Reason, cmp.Or(h.Error, evaluation.Fault)
			}
		}
	}
}

// errorReasons are the reasons whose message is an error.
var errorReasons = map[record.Reason]bool{
	"FinalizerFailed": true, "FinalizerFault": true, "FinalizerNotReady": true, "FinalizerNotSelected": true, "FinalizerCircular": true,
	"FinalizerError": true, "FinalizerBlocked": true, decide.PolicyFault: true, decide.DependentsUnreadable: true, decide.OwnersUnreadable: true,
}

// newestRecord returns the newest record about a finalizer. Records about holds and the finalizers
// of garbage collection are about the whole object.
func (e *Explanation) newestRecord(finalizer string) (record.Entry, bool) {
	about := finalizer
	switch finalizer {
	case graph.Hold, metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents:
		about = ""
	}
	for _, entry := range slices.Backward(e.Records) {
		if entry.Action == record.None && entry.Detail == about || about == "" && entry.Action == record.SaveState {
			return entry, true
		}
	}
	return record.Entry{}, false
}

// whyExists returns why an object exists that is not being deleted.
func (e *Explanation) whyExists(f Data) string {
	var standing, unread, absent []string
	for _, o := range e.Owners {
		switch o.Status {
		case decide.Present.String():
			standing = append(standing, o.Object.String())
		case decide.Absent.String(), decide.Waiting.String(), decide.Orphaning.String():
			absent = append(absent, o.Object.String())
		default:
			unread = append(unread, o.Object.String())
		}
	}
	last := e.lastRecord(f.Resources.ReadAt)
	switch {
	case !f.FactsKnown && len(f.Object.GetOwnerReferences()) != 0:
		return "It is not being deleted. The state of its owners is unknown."
	case len(standing) != 0:
		return "It is not being deleted, because it still has owners: " + joinNames(standing) + "." + last
	case len(unread) != 0:
		return "It is not being deleted: " + joinNames(unread) + " could not be read, and unreadable owners are not considered absent." + last
	case len(absent) != 0 && len(e.Paused)+len(e.Limited) != 0:
		return "Its owners are gone (" + joinNames(absent) + "), but it still exists. " + strings.Join(slices.Concat(e.Paused, e.Limited), " ") + last
	case len(absent) != 0 && last != "":
		return "Its owners are gone (" + joinNames(absent) + "), but it still exists." + last
	case len(absent) != 0:
		return "Its owners are gone (" + joinNames(absent) + "): it is about to be collected. If it is not, run gleaner doctor to check that a garbage collector is running."
	default:
		return "It is not being deleted. It has no owners, so it is not garbage collected." + last
	}
}

// lastRecord returns the operator's last record about the object, as a sentence.
func (e *Explanation) lastRecord(now time.Time) string {
	if len(e.Records) == 0 {
		return ""
	}
	entry := e.Records[len(e.Records)-1]
	text := fmt.Sprintf(" Gleaner's last record, at %s: %s.", entry.Time.UTC().Format(time.RFC3339), entry)
	switch {
	case entry.NextAttempt == nil:
	case !now.IsZero() && !entry.NextAttempt.After(now):
		text += " It is due to be checked again."
	default:
		text += fmt.Sprintf(" It will be checked again at %s.", entry.NextAttempt.UTC().Format(time.RFC3339))
	}
	return text
}

// whyTerminating returns what an object that is being deleted waits for.
func (e *Explanation) whyTerminating(f Data) string {
	since := "It has been terminating since " + e.DeletedAt.UTC().Format(time.RFC3339)
	if len(e.Finalizers) == 0 {
		return since + ", and has no finalizers: " + withoutFinalizers(f)
	}
	var waits []string
	for _, h := range e.Finalizers {
		waits = append(waits, fmt.Sprintf("%s (%s)", h.Name, h.Owner))
	}
	text := since + ", and waits for " + joinNames(waits) + "."
	if e.Blocking > 0 && e.Propagation == "Foreground" {
		text += fmt.Sprintf(" %s", blockingText(e.Blocking))
	}
	return strings.Join(append([]string{text}, e.Paused...), " ")
}

func blockingText(n int) string {
	if n == 1 {
		return "One dependent blocks its deletion."
	}
	return fmt.Sprintf("%d dependents block its deletion.", n)
}

// withoutFinalizers returns what an object without finalizers waits for.
func withoutFinalizers(f Data) string {
	if f.Object.Kind.Kind == "Pod" && f.Object.Kind.Group == "" {
		return "it waits for the kubelet of its node to report that its containers have stopped. If the node is gone: kubectl delete --force."
	}
	if f.Object.Kind.Kind == "Namespace" && f.Object.Kind.Group == "" {
		return "its content must be deleted first." + remainingContent(f.Conditions)
	}
	return "its grace period has not passed yet, or its last finalizer was just removed."
}

// remainingContent returns the remaining content of a namespace according to its conditions.
func remainingContent(conditions []string) string {
	if len(conditions) == 0 {
		return " Its conditions don't list what is left: check that kube-controller-manager is running."
	}
	return " " + strings.Join(conditions, ". ") + ". Run gleaner stuck -n with this namespace to see what blocks it."
}

// whyGone returns why an object does not exist, as far as that is known.
func (e *Explanation) whyGone(f Data) string {
	records, cascade := splitCascade(ofLastObject(e.Records))
	for _, entry := range slices.Backward(records) {
		if entry.Action == record.Delete && entry.Result == "Done" {
			return "It does not exist. Gleaner deleted it at " + entry.Time.UTC().Format(time.RFC3339) + ": " + entry.String() + "." + cascade
		}
	}
	text := "It does not exist." + cascade + " "
	switch n := len(records); {
	case n != 0 && records[n-1].Reason == decide.DeletedByCollector:
		last := records[n-1]
		return text + "The built-in garbage collector was allowed to delete it at " + last.Time.UTC().Format(time.RFC3339) + ": " + last.String() + "."
	case !f.OperatorFound:
		return text + "No replica of the operator was found, so whether Gleaner deleted it is unknown: set --endpoint."
	case len(f.Records.Queried) == 0:
		return text + "No replica of the operator could be queried, so whether Gleaner deleted it is unknown: see the errors below."
	}
	if n := len(records); n != 0 {
		last := records[n-1]
		did := "Gleaner's last record about it, at "
		if last.Action == record.RemoveFinalizer && last.Reason != decide.HoldObsolete && last.Error == "" {
			did = "Gleaner removed its finalizer at "
		}
		text += did + last.Time.UTC().Format(time.RFC3339) + ": " + last.String() + ". "
	}
	text += e.notDeletedSince()
	if len(f.Records.Unreachable) != 0 {
		text += " Not all replicas could be queried."
	}
	return text
}

// splitCascade returns the records of decisions, and what became of the cascade that the object's deletion
// has begun, as a sentence; "" if that is not recorded.
func splitCascade(records []record.Entry) (decisions []record.Entry, sentence string) {
	for _, r := range records {
		switch r.Reason {
		case decide.CascadeCompleted, decide.CascadeStalled:
			sentence = " At " + r.Time.UTC().Format(time.RFC3339) + ", its " + r.Message + "."
		default:
			decisions = append(decisions, r)
		}
	}
	return decisions, sentence
}

// notDeletedSince returns since when Gleaner is known not to have deleted an object. Before the
// records begin, nothing is known.
func (e *Explanation) notDeletedSince() string {
	const audit = "See the API server's audit log for whether it existed and who deleted it."
	if e.RecordsSince == nil {
		return "Whether Gleaner deleted it is unknown: the leading replica, which has the records, could not be queried. " + audit
	}
	since := e.RecordsSince.UTC().Format(time.RFC3339)
	return "The records begin at " + since + "; Gleaner has not deleted it since then. " + audit
}

// ofLastObject returns the records of the last object with the name. Earlier objects with the same
// name may have been deleted for other reasons.
func ofLastObject(records []record.Entry) []record.Entry {
	if len(records) == 0 {
		return nil
	}
	last := records[len(records)-1].Object.UID
	return slices.DeleteFunc(slices.Clone(records), func(e record.Entry) bool { return e.Object.UID != last })
}

// joinNames joins words as in "a, b and c".
func joinNames(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

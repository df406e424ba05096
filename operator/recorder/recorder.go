// Package recorder records decisions: it turns them into entries, and hands each to the
// ring of records, to metrics, to the status of policies, and, if it is new, to the log and
// to Kubernetes events. A slow reader of events never slows collection.
//
// It decides nothing and keeps no entries but those of the ring.
package recorder

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	eventrecord "k8s.io/client-go/tools/record"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/collector"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/imagereview"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/retainer"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
)

// Options configure a Recorder. Limiter, Events, BuiltinEvents, Subscriber and Keep may be nil.
type Options struct {
	Records      *record.Store
	Observations *policystatus.Observations
	Default      string // name of the evaluator that decides if no policy does
	Log          logr.Logger
	Now          func() time.Time

	// Limiter bounds log lines and events of decisions that write nothing but state.
	Limiter *writelimit.Limiter

	// Events are Gleaner's own, and BuiltinEvents those that the built-in collector raises
	// as well.
	Events, BuiltinEvents eventrecord.EventRecorder

	// Subscriber gets each entry, before the next decision is made.
	Subscriber func(record.Entry)

	// Keep gets each entry that does not repeat an earlier one, with its chain, to store it
	// durably. It must not block.
	Keep func(record.Entry)
}

// Recorder records decisions. Create it with New. Its methods may be called concurrently.
type Recorder struct {
	options Options
	metrics *metrics
}

// New returns a Recorder.
func New(o Options) *Recorder { return &Recorder{options: o, metrics: newMetrics()} }

// Record records a decision. Nothing is recorded where there is nothing to do, or where
// that is not known yet.
func (r *Recorder) Record(d collector.Outcome) {
	if d.Plan.Reason == decide.NothingToDo || d.Plan.ConfirmDependents {
		return
	}
	entry := r.entryOf(d)
	r.countEvaluations(entry)
	r.metrics.countDecision(entry, d.Facts.Object)
	if d.Result == act.Done && entry.Action == record.Delete {
		r.metrics.observeDelay(d.Facts, entry.Time)
	}
	if r.options.Subscriber != nil {
		r.options.Subscriber(entry)
	}
	entry, isNew := r.add(entry)
	if !isNew {
		return
	}
	r.warn(d.Facts, d.Plan)
	if r.announces(entry) {
		r.log(entry)
		r.raiseEvent(d.Facts.Object, entry)
	}
}

// add adds an entry to the ring, and has it kept if it is new.
func (r *Recorder) add(entry record.Entry) (record.Entry, bool) {
	entry, isNew := r.options.Records.Add(entry)
	if isNew && r.options.Keep != nil {
		r.options.Keep(entry)
	}
	return entry, isNew
}

// entryOf returns the entry of an outcome.
func (r *Recorder) entryOf(d collector.Outcome) record.Entry {
	action, detail := record.ActionOf(d.Plan.Action)
	entry := record.Entry{
		Time:     r.options.Now(),
		Object:   record.ObjectOf(d.Facts.Object),
		Reason:   d.Plan.Reason,
		Action:   action,
		Detail:   detail,
		Owners:   record.OwnersOf(d.Facts),
		Message:  cmp.Or(d.Plan.Message, d.Facts.ConfirmError),
		Duration: d.Duration,

		GracePeriodSeconds: record.GracePeriodOf(d.Plan.Action),
	}
	entry.OwnersOmitted = len(d.Facts.Owners) - len(entry.Owners)
	if d.Plan.Reason == decide.TooManyOwners { // which of them were read by now changes all the time
		entry.Owners, entry.OwnersOmitted, entry.Message = nil, len(d.Facts.Owners), tooManyOwners(d.Facts)
	}
	if action != record.None {
		entry.Result = string(d.Result)
	}
	if d.Err != nil {
		entry.Result, entry.Error = "Failed", d.Err.Error()
	}
	if d.Plan.Reason == decide.DependentsRemain || d.Plan.Reason == decide.DependentsInOrder {
		entry.Blockers, entry.Blocking = record.BlockersOf(d.Facts), d.Facts.Blocking
	}
	entry.Policy, entry.Evaluations = d.Evaluation.PolicyName(r.options.Default), evaluationsOf(d.Evaluation)
	if f := d.Evaluation.Fault; f != nil && d.Plan.Reason == decide.PolicyFault && len(entry.Evaluations) == 0 {
		entry.Message = f.Error() // no evaluation has it
	}
	if d.Plan.RequeueAfter > 0 {
		next := entry.Time.Add(d.Plan.RequeueAfter)
		entry.NextAttempt = &next
	}
	return entry
}

// tooManyOwners returns the message for an object with more owners than are read at once.
func tooManyOwners(facts decide.Facts) string {
	if facts.Object.Truncated {
		return fmt.Sprintf("it has more than %d owner references, and is kept until it has fewer", graph.MaxOwners)
	}
	return fmt.Sprintf("it has %d owner references, which are read little by little", len(facts.Object.Owners))
}

// RecordDeferred records that the built-in collector was kept from deleting an object that
// is not decided about yet.
func (r *Recorder) RecordDeferred(o graph.Object, why string) {
	entry := record.Entry{
		Time: r.options.Now(), Object: record.ObjectOf(o), Reason: decide.DeletionDeferred, Action: record.None, Message: why,
	}
	r.metrics.countDecision(entry, o)
	if entry, isNew := r.add(entry); isNew {
		r.log(entry)
	}
}

// RecordCascade records what became of the cascade that an object's deletion has begun.
func (r *Recorder) RecordCascade(root record.Object, reason decide.Reason, message string, at time.Time) {
	entry := record.Entry{Time: at, Object: root, Reason: reason, Action: record.None, Message: message}
	if r.options.Subscriber != nil {
		r.options.Subscriber(entry)
	}
	r.add(entry)
}

// RecordDenied records that a policy denied a user's request to delete an object.
func (r *Recorder) RecordDenied(o graph.Object, user string, evaluation evaluate.Result) {
	entry := record.Entry{
		Time: r.options.Now(), Object: record.ObjectOf(o), Reason: decide.DeletionDenied, Action: record.None, Message: "requested by " + user,
		Policy: evaluation.PolicyName(r.options.Default), Evaluations: evaluationsOf(evaluation),
	}
	r.countEvaluations(entry)
	r.metrics.countDecision(entry, o)
	if entry, isNew := r.add(entry); isNew && r.announces(entry) {
		r.log(entry)
	}
}

// RecordRetention records that an object was removed for a retention policy, that this has failed, or that another policy keeps it.
func (r *Recorder) RecordRetention(o retainer.Outcome) {
	entry := r.retentionEntry(o)
	if r.options.Subscriber != nil {
		r.options.Subscriber(entry)
	}
	r.publish(entry, o.Object)
}

// publish counts, adds and announces an entry about retention.
func (r *Recorder) publish(entry record.Entry, about graph.Object) {
	r.countEvaluations(entry)
	r.metrics.countDecision(entry, about)
	if entry, isNew := r.add(entry); isNew && r.announces(entry) {
		r.log(entry)
		r.raiseEvent(about, entry)
	}
}

func (r *Recorder) retentionEntry(o retainer.Outcome) record.Entry {
	entry := record.Entry{
		Time: r.options.Now(), Object: record.ObjectOf(o.Object), Reason: decide.RemovedByRetention, Action: record.None,
		Policy: o.Policy.Policy.String(), Message: fmt.Sprintf("%s: %s", o.Policy.Policy, o.Message), Duration: o.Duration,
		Evaluations: evaluationsOf(o.Evaluated),
	}
	switch {
	case o.Kept && o.Err != nil:
		entry.Reason, entry.Policy = decide.PolicyFault, o.Evaluated.PolicyName(r.options.Default)
	case o.Kept:
		entry.Reason, entry.Policy = decide.KeptByPolicy, o.Evaluated.PolicyName(r.options.Default)
	default:
		entry.Action, entry.Detail = record.ActionOf(o.Action)
		entry.Result = string(o.Result)
		if o.Err != nil {
			entry.Result = "Failed"
		}
	}
	if o.Err != nil {
		entry.Error = o.Err.Error()
	}
	if !o.NextAttempt.IsZero() {
		entry.NextAttempt = &o.NextAttempt
	}
	return entry
}

// RecordImage records that a policy keeps an image on a node, or can't be evaluated.
func (r *Recorder) RecordImage(o imagereview.Outcome) {
	spec := o.Request.Spec
	name := spec.Image.ID
	if len(spec.Image.Names) != 0 {
		name = spec.Image.Names[0]
	}
	entry := record.Entry{
		Time: r.options.Now(), Object: record.ObjectOf(o.Node), Reason: decide.KeptByPolicy, Action: record.None, Policy: o.Evaluated.PolicyName(r.options.Default),
		Message: fmt.Sprintf("image %s, which NodeRetentionPolicy %s removes: %s", name, spec.Policy, spec.Limit), Evaluations: evaluationsOf(o.Evaluated),
	}
	if f := o.Evaluated.Fault; f != nil {
		entry.Reason, entry.Error = decide.PolicyFault, f.Error()
	}
	r.publish(entry, o.Node)
}

// RecordFinalizer records a decision about an object that has a finalizer.
func (r *Recorder) RecordFinalizer(o finalizers.Outcome) {
	entry := r.finalizerEntry(o)
	if o.Evaluated {
		r.countEvaluations(entry)
	}
	r.metrics.countDecision(entry, o.Object)
	r.metrics.countFinalizer(o, entry)
	if w := (*modulecall.WithheldError)(nil); errors.As(o.Err, &w) {
		r.RecordWithheld(w)
	}
	entry, isNew := r.add(entry)
	if o.Reason == finalizers.RateLimited {
		r.CountLimited(entry.Policy, "writes")
	}
	if isNew && r.announces(entry) {
		r.log(entry)
		r.raiseFinalizerEvent(o, entry)
	}
}

func (r *Recorder) finalizerEntry(o finalizers.Outcome) record.Entry {
	entry := record.Entry{
		Time: r.options.Now(), Object: record.ObjectOf(o.Object), Reason: record.Reason(o.Reason), Action: record.None,
		Policy: o.Finalizer.String(), Detail: o.Finalizer.Entry, Message: o.Message, Duration: o.Duration,
	}
	switch {
	case o.Removed:
		entry.Action, entry.Result = record.RemoveFinalizer, "Done"
	case o.Reason == finalizers.Attached:
		entry.Action, entry.Result = record.AddFinalizer, "Done"
	}
	if o.Err != nil {
		entry.Result, entry.Error = "Failed", o.Err.Error()
	}
	if !o.NextRetry.IsZero() {
		entry.NextAttempt = &o.NextRetry
	}
	if o.Evaluated {
		entry.Evaluations = append(entry.Evaluations, finalizerEvaluation(o))
		for _, c := range o.Intents {
			entry.Intents = append(entry.Intents, record.IntentsOf([]hostabi.Intent{c.Intent}, map[string]hostabi.Result{c.Intent.ID: c.Result})...)
		}
	}
	return entry
}

// RecordWithheld has the status of policies and finalizers say that objects are withheld
// from them.
func (r *Recorder) RecordWithheld(all ...*modulecall.WithheldError) {
	for _, w := range all {
		r.options.Observations.Withheld(w.Policy, w.Message)
	}
}

// RecordStateLimited records that a state was not written, since its policy has reached its
// limit.
func (r *Recorder) RecordStateLimited(policy string) {
	r.CountLimited(policy, "states")
	r.options.Observations.Limited(policy)
}

// evaluationsOf returns the evaluations of policies as records have them.
func evaluationsOf(result evaluate.Result) []record.Evaluation {
	var list []record.Evaluation
	for _, e := range result.Evaluations {
		entry := record.Evaluation{
			Policy: e.Policy.String(), Generation: e.Policy.Generation, Mode: modeOf(e.Policy.Enforce), Hook: string(e.Hook),
			Module: e.Policy.Module, Digest: e.Policy.Digest,
			Decision: string(e.Verdict.Decision), Reason: e.Verdict.Reason,
			Fuel: e.Fuel, Rounds: e.Rounds, Duration: int64(e.Duration),
		}
		if e.Fault != nil {
			entry.Decision, entry.Fault = "", e.Fault.Error()
		}
		entry.SetExchanges(e.Exchanges, false) // policies may not have Secrets recorded
		list = append(list, entry)
	}
	return list
}

// finalizerEvaluation returns the evaluation of a finalizer's module as records have it.
func finalizerEvaluation(o finalizers.Outcome) record.Evaluation {
	f := o.Finalizer
	entry := record.Evaluation{
		Policy: f.String(), Generation: f.Generation, Mode: modeOf(f.Enforce), Hook: string(hostabi.HookFinalize), Module: f.Module, Digest: f.Digest,
		Decision: string(o.Verdict.Decision), Reason: o.Verdict.Reason, Fuel: o.Fuel, Rounds: o.Rounds, Duration: int64(o.Duration),
	}
	if o.Fault != nil {
		entry.Decision, entry.Fault = "", o.Fault.Error()
	}
	entry.SetExchanges(o.Exchanges, f.RecordBodies)
	return entry
}

func modeOf(enforce bool) string {
	if enforce {
		return "Enforce"
	}
	return "Monitor"
}

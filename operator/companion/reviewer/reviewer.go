// Package reviewer answers whether the built-in garbage collector may delete an object: it
// has the collector decide about the object, and compares the decision with the req.
// The leader carries out what was decided before it answers.
//
// A request is denied if the answer isn't known for certain and a policy may govern the
// object: the built-in collector retries, and what a policy has deleted is deleted by
// Gleaner if the retry doesn't come in time.
package reviewer

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/collector"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/pause"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/slots"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// Timeout limits a review: a worker of the built-in collector waits for it.
	Timeout = 900 * time.Millisecond

	// maxWatchDelay is how long the watch may take to show that owners are absent, as the
	// built-in collector has found.
	maxWatchDelay = 300 * time.Millisecond

	// maxReviews is how many reviews may be in progress in one replica. The built-in
	// collector has 20 workers by default, and Gleaner two replicas: a namespace may have
	// half of the reviews in each, and so half of the workers.
	maxReviews = 10

	// maxSlotWait is how long a review waits for others of its namespace.
	maxSlotWait = 25 * time.Millisecond

	watchPollInterval = 5 * time.Millisecond
)

// Recorder records reviews.
type Recorder interface {
	Record(collector.Outcome)
	RecordDeferred(o graph.Object, reason string)
	CountVeto(kind schema.GroupKind, allowed bool)
}

// Options configure a Reviewer. All fields are required, unless stated otherwise.
type Options struct {
	Collector *collector.Collector
	Store     *graphstore.Store
	Gate      *gate.Gate
	Recorder  Recorder
	Types     func() *catalog.Catalog
	Policies  func() *policies.Set          // nil until they are known
	Covers    func(fingerprint string) bool // see policyset.Publisher.Covers; nil if policies don't change
	Listed    func() bool                   // reports whether the graph is complete
	Default   policies.Evaluator            // decides if no policy does
	Pauses    func() (*pause.Set, error)    // an error: they are not known

	// Limited returns a deletion budget that limits the deletion of an object; "" if none does. Optional.
	Limited func(context.Context, graph.Object) (string, error)

	Now func() time.Time
	Log logr.Logger
}

// Reviewer answers reviews. Create it with New. Its methods may be called concurrently.
type Reviewer struct {
	options Options
	store   *graphstore.Store
	decider *collector.Decider
	slots   *slots.Slots
}

// New returns a Reviewer.
func New(o Options) *Reviewer {
	return &Reviewer{options: o, store: o.Store, decider: o.Collector.Decider, slots: slots.New(maxReviews, maxSlotWait)}
}

// Handler serves the validating webhook for deletes by the built-in collector.
func (r *Reviewer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+companion.VetoPath+"/{policies}", func(w http.ResponseWriter, from *http.Request) {
		r.handler(from.PathValue("policies")).ServeHTTP(w, from)
	})
	mux.Handle("POST "+companion.VetoPath, r.handler("")) // as earlier versions have installed it
	return mux
}

// handler answers reviews that are due to the policies with a fingerprint.
func (r *Reviewer) handler(fingerprint string) http.Handler {
	return handlerOf(func(ctx context.Context, req request) response {
		ctx, cancel := context.WithTimeout(ctx, Timeout)
		defer cancel()
		to := r.review(ctx, fingerprint, req)
		r.options.Recorder.CountVeto(req.Kind.GroupKind(), to.Allowed)
		return to
	})
}

// review answers one req.
func (r *Reviewer) review(ctx context.Context, fingerprint string, req request) response {
	o := graph.ObjectOf(req.Kind, req.Object)
	upToDate := fingerprint == "" || r.options.Covers == nil || r.options.Covers(fingerprint)
	set := r.options.Policies()
	resource, served := r.options.Types().Preferred(req.Kind.GroupKind())
	switch {
	case set == nil:
		return r.deny(req, o, "the policies have not been read yet")
	case !upToDate:
		return r.deny(req, o, "the policies have changed, and have not been read yet")
	case !served:
		return r.deny(req, o, "objects of this kind are not known yet")
	case !r.options.Listed(): // policies may turn on an object's dependents
		return r.deny(req, o, "not all objects have been listed yet")
	}
	release, ok := r.slots.Acquire(ctx, o.Namespace)
	if !ok {
		return r.reviewWithoutSlot(req, o)
	}
	defer release()
	r.store.Apply(graph.Read{Object: o})
	if reason := r.keptByOwner(ctx, o); reason != "" {
		return r.deny(req, o, reason)
	}
	if !set.Has(hostabi.HookCollect, resource.Version.GroupResource(), o.Namespace) {
		return response{Allowed: true}
	}
	if resource.Version.Version != req.Kind.Version {
		req.Object = nil // policies see objects in one version
	}
	governed, err := r.decider.Evaluator.Governs(ctx, evaluate.Input{Hook: hostabi.HookCollect, Facts: decide.Facts{Object: o}, Object: req.Object})
	switch {
	case err == nil && governed == evaluate.NotGoverned:
		return response{Allowed: true}
	case err != nil:
		governed = evaluate.GovernedInEnforce // it may be
	}
	return r.reviewGoverned(ctx, req, o, governed)
}

// reviewWithoutSlot answers a request that can't be evaluated now, since too many others of
// its namespace are. It is denied if a policy in Enforce mode may govern the object, or
// decides about an owner.
func (r *Reviewer) reviewWithoutSlot(req request, o graph.Object) response {
	decidedAbout := func(ref metav1.OwnerReference) bool { return r.store.IsHeldTerminating(graph.IDOf(ref.UID)) }
	if !r.decider.IsVetoed(o) && !slices.ContainsFunc(o.Owners, decidedAbout) {
		return response{Allowed: true}
	}
	return r.deny(req, o, "too many objects of its namespace are being evaluated")
}

// deny denies what isn't decided. Decisions are recorded elsewhere.
func (r *Reviewer) deny(req request, o graph.Object, reason string) response {
	if !req.DryRun {
		r.options.Recorder.RecordDeferred(o, reason)
	}
	return denied("%s", reason)
}

// reviewGoverned answers a request about an object that a policy governs.
func (r *Reviewer) reviewGoverned(ctx context.Context, req request, o graph.Object, by evaluate.Governance) response {
	unknown := func(reason string) response {
		if by != evaluate.GovernedInEnforce {
			return response{Allowed: true}
		}
		return r.deny(req, o, reason)
	}
	facts, ok := r.ownerless(ctx, o)
	if !ok {
		return unknown("its owners are not known to be gone yet")
	}
	// The API server is about to delete the object as it is in the request.
	facts.Object.ResourceVersion, facts.Object.Selection = o.ResourceVersion, o.Selection
	d, err := r.options.Collector.Decide(ctx, graph.IDOf(o.UID), facts, req.Object)
	if err != nil || d.Changed() != nil {
		return unknown("it could not be evaluated in time")
	}
	if matches(d, req) {
		if reason := r.paused(d); reason != "" {
			if !req.DryRun {
				r.options.Collector.Keep(graph.IDOf(o.UID))
			}
			return r.deny(req, o, reason)
		}
		if reason := r.limited(ctx, o); reason != "" {
			return r.deleteInstead(req, o, reason)
		}
		r.recordAllowed(d)
		return response{Allowed: true}
	}
	if r.options.Gate.IsOpen() && !req.DryRun {
		if err := r.options.Collector.CarryOut(ctx, d); err != nil {
			r.options.Log.V(1).Info("Could not carry out a decision at once", "object", record.ObjectOf(o).String(), "error", err.Error())
		}
	}
	return denied("%s, by %s", d.Plan.Reason, d.Evaluation.PolicyName(r.defaultName()))
}

// paused says that a pause covers what was decided, or that this is not known; "" if none does.
func (r *Reviewer) paused(d collector.Decision) string {
	set, err := r.options.Pauses()
	if err != nil {
		return err.Error()
	}
	if p, is := set.Stopping(d.Facts.Object.Namespace, d.Evaluation.PolicyName(""), r.options.Now()); is {
		return pause.Message(p)
	}
	return ""
}

// limited says that a deletion budget limits the deletion of an object, or that this is not known; "" if none does.
func (r *Reviewer) limited(ctx context.Context, o graph.Object) string {
	if r.options.Limited == nil {
		return ""
	}
	by, err := r.options.Limited(ctx, o)
	switch {
	case err != nil:
		return err.Error()
	case by != "":
		return "limited by " + by + ": Gleaner deletes it"
	default:
		return ""
	}
}

// deleteInstead denies what the built-in collector may not delete because of a budget, which counts the deletions of
// Gleaner: that deletes the object when the budget allows it.
func (r *Reviewer) deleteInstead(req request, o graph.Object, reason string) response {
	if !req.DryRun {
		r.options.Collector.Keep(graph.IDOf(o.UID))
		r.store.Requeue([]graph.ID{graph.IDOf(o.UID)})
	}
	return r.deny(req, o, reason)
}

// recordAllowed records a decision that the built-in collector carries out.
func (r *Reviewer) recordAllowed(d collector.Decision) {
	d.Plan.Action, d.Plan.Reason = nil, decide.DeletedByCollector
	r.options.Recorder.Record(collector.Outcome{
		Facts: d.Facts, Plan: d.Plan, Evaluation: d.Evaluation, Duration: r.options.Now().Sub(d.Began),
	})
}

// matches reports whether the built-in collector is about to do what was decided.
func matches(d collector.Decision, req request) bool {
	v, enforced := d.Evaluation.Verdict, false
	for _, e := range d.Evaluation.Evaluations {
		enforced = enforced || e.Policy.Enforce
	}
	if d.Evaluation.Fault != nil || !enforced {
		return d.Evaluation.Fault == nil
	}
	_, deletes := d.Plan.Action.(decide.Delete)
	return (deletes || d.Plan.Reason == decide.LeftToCollector) && d.Evaluation.MatchesDefault && string(v.Propagation) == string(req.Propagation)
}

func (r *Reviewer) defaultName() string {
	if r.options.Default == nil {
		return ""
	}
	return r.options.Default.Name()
}

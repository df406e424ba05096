// Package policystatus writes the status of policies, finalizers, archive policies and modules, and
// events about them. It computes conditions from the current snapshot and from what other
// components have published, and is the only writer of both.
package policystatus

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/retainer"
	"github.com/gleaner-dev/gleaner/policies/worker"
)

const (
	// interval is how often counts are written, if they have changed.
	interval = 10 * time.Second

	// progressPause is the least time between two writes about the progress of finalizers:
	// a thousand objects can make progress within a second.
	progressPause = time.Second

	// loadingGrace is how long a module may be loading before its status says so. What
	// takes no longer is not worth two writes.
	loadingGrace = time.Second

	// installGrace is how long the status of a new snapshot waits for what is installed for
	// it. Then it is written without that.
	installGrace = 2 * time.Second

	// installTimeout is how long Enforcing stays as it was written while it is not known
	// what is installed. Then it is Unknown.
	installTimeout = 30 * time.Second
)

// Place is a resource in one namespace, or "" for cluster-scoped objects.
type Place struct {
	Resource  schema.GroupResource
	Namespace string
}

// Progress is what a finalizer has done.
type Progress struct {
	Pending  int // objects that are being deleted and have it
	Released int // objects from which it was removed
	Stalled  []v1alpha1.StalledObject

	// Carriers counts the objects that have it, being deleted or not, if they were counted
	// since the resource was deleted.
	Carriers int
	Counted  bool
}

// Options configure a Writer. All fields but Companion, Sandbox and Archive are required.
type Options struct {
	Client    client.Client
	Snapshots *policyset.Publisher
	Gate      *gate.Gate // only the leader writes
	Admission *latest.Value[admission.Status]
	Protect   *latest.Value[admission.Status]

	// GracePeriods is what stores the grace periods of requests.
	GracePeriods *latest.Value[admission.Status]

	Companion *latest.Value[companion.Status] // nil in primary mode

	Observations *Observations
	Sandbox      *worker.Pool // may be nil
	Archive      *Archive     // nil: there is no archive
	Retention    *latest.Value[retainer.Status]

	// Held counts the objects with a hold.
	Held func() map[Place]int

	// Progress returns what a finalizer has done, by the UID of its resource.
	Progress func(types.UID) Progress

	// Serves reports whether a resource is served, as far as discovery has seen, and
	// whether its objects are namespaced.
	Serves func(schema.GroupResource) (served, namespaced bool)

	// ServesKind reports whether a kind is served, as far as discovery has seen.
	ServesKind func(schema.GroupKind) bool

	Events record.EventRecorder
	Log    logr.Logger
	Now    func() time.Time
}

// Writer writes status. Create it with NewWriter.
type Writer struct {
	options  Options
	progress chan struct{} // capacity 1: see FinalizersChanged

	// Of Run's goroutine:
	copies   map[types.UID]statusCopy
	revision uint64    // of the snapshot that was current at the last look
	since    time.Time // when that became so
}

// NewWriter returns a Writer.
func NewWriter(o Options) *Writer {
	return &Writer{options: o, progress: make(chan struct{}, 1), copies: map[types.UID]statusCopy{}}
}

// FinalizersChanged has the status of finalizers written soon.
func (w *Writer) FinalizersChanged() {
	select {
	case w.progress <- struct{}{}:
	default:
	}
}

// Run writes status while this replica leads, until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		changed := w.changed()
		w.update(ctx, again)
		select {
		case <-ctx.Done():
			return nil
		case <-changed.snapshots:
		case <-changed.gate:
		case <-changed.admission:
		case <-changed.protect:
		case <-changed.gracePeriods:
		case <-changed.companion:
		case <-changed.store:
		case <-changed.retention:
			w.reportRetention(ctx)
			pause(ctx, progressPause)
		case <-again.C:
		case <-tick.C:
		case <-w.progress:
			w.reportProgress(ctx)
			pause(ctx, progressPause)
		}
	}
}

// changes are closed when something is published that status depends on.
type changes struct{ snapshots, gate, admission, protect, gracePeriods, companion, store, retention <-chan struct{} }

func (w *Writer) changed() changes {
	c := changes{
		snapshots: w.options.Snapshots.Changed(), gate: w.options.Gate.Changed(), admission: w.options.Admission.Changed(),
		protect: w.options.Protect.Changed(), gracePeriods: w.options.GracePeriods.Changed(),
	}
	if w.options.Retention != nil {
		c.retention = w.options.Retention.Changed()
	}
	if w.options.Companion != nil {
		c.companion = w.options.Companion.Changed()
	}
	if w.options.Archive != nil {
		c.store = w.options.Archive.Store.Changed()
	}
	return c
}

// update writes the status of everything in the current snapshot that has changed. It sets
// the timer if something will change with time.
func (w *Writer) update(ctx context.Context, again *time.Timer) {
	s, v := w.view()
	if s == nil {
		return
	}
	if s.Revision != w.revision {
		w.revision, w.since = s.Revision, time.Now()
	}
	if age := time.Since(w.since); !v.complete() && age < installGrace {
		again.Reset(installGrace - age)
		return
	}
	w.report(ctx, s, v)
	if s.LoadingSince(brief) {
		again.Reset(loadingGrace)
	}
}

// reportProgress writes the status of finalizers.
func (w *Writer) reportProgress(ctx context.Context) {
	if s, v := w.view(); s != nil && s.Revision == w.revision {
		w.reportFinalizers(ctx, s, v)
		w.reportArchives(ctx, s, v)
	}
}

// view returns the current snapshot, and what is known about what was installed for it; no
// snapshot if this replica does not lead.
func (w *Writer) view() (*policyset.Snapshot, view) {
	s, state := w.options.Snapshots.Current(), w.options.Gate.State()
	if s == nil || !state.Leading {
		return nil, view{}
	}
	installed := func(status *latest.Value[admission.Status]) *admission.Status {
		last, ok := status.Load()
		if !ok || last.Term != state.Term || last.Revision != s.Revision {
			return nil
		}
		return &last
	}
	v := view{
		since: w.since, admission: installed(w.options.Admission), protect: installed(w.options.Protect), gracePeriods: installed(w.options.GracePeriods),
	}
	if w.options.Companion == nil {
		v.primary = true
		return s, v
	}
	if c, ok := w.options.Companion.Load(); ok && c.Term == state.Term && c.Revision == s.Revision {
		v.companion = &c
	}
	return s, v
}

// view is what is known about what was installed for a snapshot.
type view struct {
	primary      bool
	admission    *admission.Status // nil: not known yet
	protect      *admission.Status // likewise
	gracePeriods *admission.Status // likewise
	companion    *companion.Status // likewise; nil in primary mode
	since        time.Time         // the snapshot is current since then
	held         map[Place]int
}

func (v view) complete() bool {
	return v.admission != nil && v.protect != nil && v.gracePeriods != nil && (v.primary || v.companion != nil)
}

// brief reports whether something has been loading for less than loadingGrace.
func brief(since time.Time) bool { return !since.IsZero() && time.Since(since) < loadingGrace }

// report writes the status of every resource whose status has changed.
func (w *Writer) report(ctx context.Context, s *policyset.Snapshot, v view) {
	w.options.Observations.keep(s)
	w.forgetCopies(s)
	if slices.ContainsFunc(s.Policies, (*policyset.Policy).RequiresHold) {
		v.held = w.options.Held()
	}
	for _, m := range s.Modules {
		if !brief(m.Loading) {
			w.write(ctx, m.Object, m.Kind, func(o client.Object) {
				status := moduleStatus(o)
				describeModule(m, status)
				status.Reason = summary(status.Conditions)
			})
		}
	}
	for _, p := range s.Policies {
		if !brief(p.Loading) {
			w.write(ctx, p.Object, p.Kind, func(o client.Object) {
				status := policyStatus(o)
				w.describePolicy(s, v, p, status)
				status.Reason = summary(status.Conditions)
			})
		}
	}
	w.reportFinalizers(ctx, s, v)
	w.reportArchives(ctx, s, v)
	w.reportRetentions(ctx, s)
}

func (w *Writer) reportFinalizers(ctx context.Context, s *policyset.Snapshot, v view) {
	for _, f := range s.Finalizers {
		if brief(f.Loading) {
			continue
		}
		progress := w.options.Progress(f.Finalizer.UID)
		w.write(ctx, f.Object, f.Kind, func(o client.Object) {
			status := finalizerStatus(o)
			w.describeFinalizer(v, f, progress, status)
			status.Reason = finalizerSummary(status)
		})
	}
}

// write writes an object's status, if describing changes it, and events about conditions
// that have changed. The response is not used: it may be of a later generation than the
// snapshot has. Its version is: see copyOf.
func (w *Writer) write(ctx context.Context, read client.Object, kind string, describe func(client.Object)) {
	o := w.copyOf(read)
	before := o.DeepCopyObject().(client.Object)
	describe(o)
	if equality.Semantic.DeepEqual(before, o) {
		return
	}
	patched := o.DeepCopyObject().(client.Object)
	if err := w.options.Client.Status().Patch(ctx, patched, client.MergeFrom(before)); err != nil {
		w.copies[read.GetUID()] = statusCopy{read, before, w.copies[read.GetUID()].version} // as far as is known
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			w.options.Log.Error(err, "Could not write the status", "kind", kind, "namespace", o.GetNamespace(), "name", o.GetName())
		}
		return
	}
	w.copies[read.GetUID()] = statusCopy{read, o, patched.GetResourceVersion()}
	w.announce(o, kind, *conditionsOf(before), *conditionsOf(o))
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

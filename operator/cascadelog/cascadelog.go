// Package cascadelog reports cascades: one event, log line and set of metrics when a cascade has completed, and one event
// when it makes no progress. What is in progress is stored in a ConfigMap, so that a restart neither loses nor repeats it.
//
// When a cascade has completed is decided by package completion.
package cascadelog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const (
	// ConfigMap is the name of the ConfigMap with the cascades in progress, in the operator's namespace.
	ConfigMap = "gleaner-cascades"

	// Key is its key.
	Key = "cascades.json"

	checkInterval  = time.Second
	storeInterval  = 5 * time.Second
	requestTimeout = 5 * time.Second

	maxPending    = 1000             // reports of one namespace that are not written yet
	maxNamespaces = 1000             // with such reports
	maxWrites     = 20               // events in each checkInterval
	maxDelay      = 10 * time.Minute // after which a report that cannot be written is lost
	maxStored     = 512 << 10        // bytes of the ConfigMap
	maxRecent     = 100              // completed cascades that are shown

	// followed is how long a replica that doesn't lead keeps a report, in case that the leader has ended before it has
	// written it.
	followed = time.Minute
)

// eventTypes are the types of events by reason.
var eventTypes = map[decide.Reason]string{
	decide.CascadeCompleted: corev1.EventTypeNormal,
	decide.CascadeStalled:   corev1.EventTypeWarning,
}

// Options configure a Log. All fields are required.
type Options struct {
	Graph     completion.View
	Client    client.Client                                          // reads live
	Event     func(context.Context, *corev1.Event) error             // creates an event
	Namespace string                                                 // of the operator
	Ignore    func(graph.Object) bool                                // reports whether an object's deletion is not reported
	Leading   func() bool                                            // reports whether this replica reports
	Left      func(completion.Cascade) string                        // what is left of a cascade, for people
	Observe   func(completed completion.Cascade, took time.Duration) // updates metrics
	Record    func(root record.Object, reason decide.Reason, message string, at time.Time)
	DryRun    bool // nothing is written
	Now       func() time.Time
	Log       logr.Logger
}

// Log follows cascades. Create it with New, and run it. Its methods may be called concurrently, except for Run.
type Log struct {
	options Options

	mu      sync.Mutex // covers what follows
	tracker completion.Tracker
	pending queue
	recent  []Completed // the last one comes last

	// Of Run alone.
	restored bool // what another process has stored was read
	stored   []byte
	storedAt time.Time
}

// report is an event that is to be written.
type report struct {
	completion.Cascade
	reason decide.Reason
	at     time.Time
}

// Completed is a cascade that has completed.
type Completed struct {
	completion.Cascade
	Completed time.Time `json:"completed"`
}

// New returns a Log of no cascades.
func New(o Options) *Log { return &Log{options: o} }

// Apply implements watch.Sink. Events have to come here before they are applied to the graph.
func (l *Log) Apply(events ...graph.Event) {
	now := l.options.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if deleted, is := e.(graph.Deleted); is && l.options.Ignore(deleted.Object) {
			continue
		}
		l.tracker.Observe(e, l.options.Graph, now)
	}
}

// Cascades returns the cascades in progress, and those that this replica has seen complete, both the oldest first.
func (l *Log) Cascades() (inProgress []completion.Cascade, completed []Completed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tracker.All(), slices.Clone(l.recent)
}

// Counts returns the number of cascades in progress, and of those that are not reported, since there were too many.
func (l *Log) Counts() (inProgress, unreported int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tracker.Len(), l.tracker.Untracked + l.pending.lost
}

// Run reports until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		l.check()
		if l.options.Leading() {
			l.lead(ctx)
		} else {
			l.restored = false
		}
	}
}

// check finds out what has completed.
func (l *Log) check() {
	now := l.options.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	completed, stalled := l.tracker.Check(l.options.Graph, now)
	for _, c := range completed {
		l.pending.add(report{Cascade: c, reason: decide.CascadeCompleted, at: now})
		l.recent = append(l.recent, Completed{c, now})
	}
	for _, c := range stalled {
		l.pending.add(report{Cascade: c, reason: decide.CascadeStalled, at: now})
	}
	l.recent = l.recent[max(len(l.recent)-maxRecent, 0):]
	if !l.options.Leading() {
		l.pending.expire(now.Add(-followed))
	}
}

// lead does what only the leader does.
func (l *Log) lead(ctx context.Context) {
	if l.options.DryRun {
		return
	}
	if !l.restored {
		if err := l.restore(ctx); err != nil {
			l.fail(ctx, err, "Could not read the cascades in progress, retrying")
			return
		}
		l.restored = true
	}
	l.report(ctx)
	if err := l.store(ctx); err != nil {
		l.fail(ctx, err, "Could not store the cascades in progress, retrying")
	}
}

func (l *Log) fail(ctx context.Context, err error, text string) {
	if ctx.Err() == nil {
		l.options.Log.Error(err, text)
	}
}

// report writes events.
func (l *Log) report(ctx context.Context) {
	l.mu.Lock()
	all := l.pending.take(maxWrites)
	l.mu.Unlock()
	var again []report
	for i, r := range all {
		if ctx.Err() != nil || !l.options.Leading() {
			again = append(again, all[i:]...)
			break
		}
		err := l.write(ctx, r)
		switch {
		case err == nil:
		case l.options.Now().Sub(r.at) < maxDelay:
			again = append(again, r)
		default:
			l.fail(ctx, err, "Could not write an event")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range again {
		l.pending.add(r)
	}
}

// write writes one event. Its name is derived from the root, so that another process can't write it again.
func (l *Log) write(ctx context.Context, r report) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	e := l.event(r)
	err := l.options.Event(ctx, e)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err): // the namespace is gone
	case err != nil:
		return err
	}
	root := record.Object{APIVersion: r.Root.APIVersion, Kind: r.Root.Kind, Namespace: r.Root.Namespace, Name: r.Root.Name, UID: r.Root.UID}
	l.options.Record(root, r.reason, e.Message, r.at)
	l.options.Log.Info(e.Message, "root", r.Root.String(), "uid", r.Root.UID, "reason", r.reason, "deleted", r.Deleted, "kept", r.Kept)
	if r.reason == decide.CascadeCompleted {
		l.options.Observe(r.Cascade, r.at.Sub(r.Began))
	}
	return nil
}

func (l *Log) event(r report) *corev1.Event {
	sum := sha256.Sum256([]byte(r.Root.UID))
	namespace := r.Root.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	took := r.at.Sub(r.Began).Round(time.Millisecond)
	message := fmt.Sprintf("cascade completed in %s: %d deleted, %d kept", took, r.Deleted, r.Kept)
	if r.reason == decide.CascadeStalled {
		message = fmt.Sprintf("cascade makes no progress: %d deleted, %d kept; left: %s", r.Deleted, r.Kept, l.options.Left(r.Cascade))
	}
	at := metav1.NewTime(r.at)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cascade-" + hex.EncodeToString(sum[:8]) + map[decide.Reason]string{decide.CascadeStalled: "-stalled"}[r.reason]},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: r.Root.APIVersion, Kind: r.Root.Kind, Namespace: r.Root.Namespace, Name: r.Root.Name, UID: r.Root.UID,
		},
		Reason: string(r.reason), Message: message, Type: eventTypes[r.reason], FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source: corev1.EventSource{Component: "gleaner"}, ReportingController: "gleaner",
	}
}

// restore adds what another process has stored.
func (l *Log) restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var from corev1.ConfigMap
	err := l.options.Client.Get(ctx, types.NamespacedName{Namespace: l.options.Namespace, Name: ConfigMap}, &from)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []completion.Cascade
	if err := json.Unmarshal([]byte(from.Data[Key]), &all); err != nil {
		l.options.Log.Error(err, "The stored cascades in progress are invalid, and are ignored", "configMap", l.options.Namespace+"/"+ConfigMap)
		return nil
	}
	l.stored = []byte(from.Data[Key]) // is replaced once it differs
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tracker.Restore(all)
	return nil
}

// store stores what is in progress.
func (l *Log) store(ctx context.Context) error {
	if l.options.Now().Sub(l.storedAt) < storeInterval {
		return nil
	}
	l.mu.Lock()
	all := append(l.pending.completed(), l.tracker.All()...)
	l.mu.Unlock()
	data, err := encode(all)
	if err != nil || string(data) == string(l.stored) || l.stored == nil && len(all) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	to := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.options.Namespace, Name: ConfigMap}, Data: map[string]string{Key: string(data)}}
	if err = l.options.Client.Update(ctx, to); apierrors.IsNotFound(err) {
		err = l.options.Client.Create(ctx, to)
	}
	if err == nil {
		l.stored, l.storedAt = data, l.options.Now()
	}
	return err
}

// encode returns the oldest cascades that fit into the ConfigMap.
func encode(all []completion.Cascade) ([]byte, error) {
	for {
		data, err := json.Marshal(all)
		if err != nil || len(data) <= maxStored {
			return data, err
		}
		all = all[:len(all)/2]
	}
}

package finalize

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// Bounds of how often a module is asked since the object has changed: at once, but not
// all the time. It goes up only while the changes follow on what the module has written.
const (
	pace       = time.Second
	paceAtLast = time.Minute
)

// visitor is one look at one object.
type visitor struct {
	*server
	f         served
	key       key
	resource  catalog.Resource
	object    *unstructured.Unstructured // as it was read; nil: it could not be
	latest    metav1.Object              // the newest that is known of its metadata; nil: to be read
	track     track
	namespace consult.Namespace
	memory    memory
	counted   bool // writes of this attempt were let through: those that follow are, too
}

// visit does what is to be done about one object, and says when to look again; 0:
// when something changes.
func (s *server) visit(ctx context.Context, k key) time.Duration {
	v := &visitor{server: s, f: s.finalizer(), key: k}
	resource, ok := s.Catalog().Preferred(k.kind)
	if !ok {
		s.drop(k, false) // once the type is back, its objects are looked for
		return 0
	}
	v.resource = resource
	object, err := s.Reader.Get(ctx, policies.Account{}, resource.Version, k.namespace, k.name)
	switch {
	case err != nil && v.denied(err):
		s.drop(k, false)
		return 0
	case err != nil:
		return v.unread(ctx, fmt.Errorf("read: %w", err))
	case object.GetUID() != k.uid:
		s.drop(k, false)
		return 0
	}
	v.object, v.latest = object, object
	carries := slices.Contains(object.GetFinalizers(), s.entry)
	if object.GetDeletionTimestamp() == nil {
		s.drop(k, false)
		return v.live(ctx, carries)
	}
	if !carries {
		s.drop(k, false)
		return 0
	}
	v.track = s.tracked(k)
	v.track.object = graph.ObjectOf(resource.GroupVersionKind(), object)
	v.track.deadline, v.track.deleted = v.due(), object.GetDeletionTimestamp().Time
	return v.terminating(ctx)
}

// unread keeps an object that could not be read. Nobody waits for one that is not
// known to be deleted.
func (v *visitor) unread(ctx context.Context, err error) time.Duration {
	if !v.waits(v.key.uid) {
		return v.postpone(ctx, Note{Err: err})
	}
	v.track = v.tracked(v.key)
	o := &v.track.object
	o.Namespace, o.Name, o.UID, o.Kind = v.key.namespace, v.key.name, v.key.uid, v.resource.GroupVersionKind()
	return v.failed(ctx, Note{}, err)
}

// due is when the object's deadline is; zero: never.
func (v *visitor) due() time.Time {
	if v.f.Longest == 0 {
		return time.Time{}
	}
	return v.object.GetDeletionTimestamp().Add(v.f.Longest)
}

// overdue reports whether the object's deadline is over.
func (v *visitor) overdue() bool {
	return !v.track.deadline.IsZero() && !v.Now().Before(v.track.deadline)
}

// terminating does what is to be done about an object that waits for the finalizer.
func (v *visitor) terminating(ctx context.Context) time.Duration {
	switch {
	case !v.f.reaches(v.key.namespace):
		v.track.asked = nil
		return v.conclude(ctx, Note{Reason: Unmeant, Message: fmt.Sprintf("%s serves nothing outside its namespace: take the finalizer off", v.f)}, 0)
	case v.f.frees():
		return v.release(ctx, "its finalizer's resource is deleted (onRemoval: Release), whatever was left to be done")
	case v.f.freesAtDeadline() && v.overdue() && !v.another(ctx):
		return v.release(ctx, fmt.Sprintf("its deadline of %s is over (onDeadline: Release), whatever was left to be done", v.f.Longest))
	}
	if n, is := v.hindered(ctx); is {
		v.track.asked = nil // it is asked as soon as nothing hinders that
		return v.conclude(ctx, n, v.afterwards(n))
	}
	if err := v.recall(); err != nil {
		v.track.asked = nil
		return v.failed(ctx, Note{}, err)
	}
	face, now := fingerprint(v.object), v.Now()
	if m := v.memory; m.Failed != "" && m.Of == v.identity(face) {
		v.track.asked = nil
		return v.conclude(ctx, Note{Reason: Failed, Message: v.untilChanged(m.Failed)}, 0)
	}
	t := &v.track
	if t.asked != nil && t.asked.Same(v.f.Finalizer) {
		soonest := t.due
		if paced := t.last.Add(v.pace()); face != t.face && (soonest.IsZero() || paced.Before(soonest)) {
			soonest = paced
		}
		if soonest.IsZero() || now.Before(soonest) {
			return v.later(ctx, soonest)
		}
	}
	t.hurried = v.hurried(face)
	t.asked, t.face, t.last, t.wrote = v.f.Finalizer, face, now, false
	return v.ask(ctx)
}

// another reports whether the finalizer is known not to be for the object: then it was
// put there for something else, of which the resource says nothing.
func (v *visitor) another(ctx context.Context) bool {
	meant, err := v.meant(ctx)
	return err == nil && !meant
}

// hurried is how often in a row the object has changed after the module had something
// written: most likely it wakes itself.
func (v *visitor) hurried(face string) int {
	if t := v.track; t.wrote && face != t.face {
		return t.hurried + 1
	}
	return 0
}

// pace is how long to wait from one question to the next, if the object changes.
func (v *visitor) pace() time.Duration {
	first := min(pace, v.f.RetryInitial)
	if v.track.wrote {
		return double(first, v.track.hurried, paceAtLast)
	}
	return first
}

// later leaves the object until it is due. If its deadline has come meanwhile, that
// is told.
func (v *visitor) later(ctx context.Context, due time.Time) time.Duration {
	t := &v.track
	if !t.reason.overtaken() || !v.overdue() {
		return v.again(due)
	}
	after := time.Duration(0)
	if !due.IsZero() {
		after = due.Sub(v.Now())
	}
	return v.conclude(ctx, Note{Reason: t.reason, Message: t.message}, after)
}

// again is how long it is until a time, or until the deadline if that comes first; 0:
// when something changes.
func (v *visitor) again(due time.Time) time.Duration {
	d := v.track.deadline
	if !d.IsZero() && !v.overdue() && (due.IsZero() || d.Before(due)) {
		due = d
	}
	if due.IsZero() {
		return 0
	}
	return max(due.Sub(v.Now()), time.Millisecond)
}

// failed keeps the object since it could not be read or written.
func (v *visitor) failed(ctx context.Context, n Note, err error) time.Duration {
	n.Reason, n.Message, n.Err = Troubled, err.Error(), err
	if v.object != nil && v.object.GetDeletionTimestamp() == nil {
		return v.postpone(ctx, n)
	}
	return v.conclude(ctx, n, v.afterwards(n))
}

// afterwards is how long to wait after something went wrong; after anything else, until
// something changes.
func (v *visitor) afterwards(n Note) time.Duration {
	if n.Err == nil && n.Fault == nil {
		v.track.failures = 0
		return 0
	}
	v.track.failures++
	return double(v.f.RetryInitial, v.track.failures-1, v.f.RetryMax)
}

// double doubles a wait so many times, up to the longest.
func double(d time.Duration, times int, longest time.Duration) time.Duration {
	for ; times > 0 && d < longest; times-- {
		d = min(2*d, longest)
	}
	return min(d, longest)
}

// conclude tells what was decided, and keeps it.
func (v *visitor) conclude(ctx context.Context, n Note, after time.Duration) time.Duration {
	if v.over(ctx) {
		return lookAgain // what was cut off is no failure
	}
	t := &v.track
	n.Finalizer, n.Object = v.f.Finalizer, t.object
	if after > 0 {
		n.Until = v.Now().Add(after)
	}
	if n.Reason.overtaken() && v.overdue() {
		n.Reason = Overdue
		n.Message = strings.TrimSuffix(fmt.Sprintf("its deadline of %s is over (%s): %s", v.f.Longest, v.held(), n.Message), ": ")
	}
	t.reason, t.message, t.due = n.Reason, n.Message, n.Until
	v.keep(*t)
	v.Note(n)
	return v.again(t.due)
}

// held is why an object is kept that is overdue.
func (v *visitor) held() string {
	switch {
	case !v.f.Enforce:
		return "mode: Monitor"
	case v.f.FreeAtDeadline:
		return "another resource has the same finalizer"
	default:
		return "onDeadline: Hold"
	}
}

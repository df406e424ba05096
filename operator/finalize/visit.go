package finalize

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// visitor is one look at one object.
type visitor struct {
	*server
	f         served
	key       key
	resource  catalog.Resource
	object    *unstructured.Unstructured
	track     track
	namespace consult.Namespace
	memory    memory
}

// visit does what is to be done about one object, and says when to look again; 0:
// when something changes.
func (s *server) visit(ctx context.Context, k key) time.Duration {
	v := &visitor{server: s, f: s.finalizer(), key: k}
	resource, ok := s.Catalog().Preferred(k.kind)
	if !ok {
		return lookAgain // its type may be back
	}
	v.resource = resource
	object, err := s.Reader.Get(ctx, policies.Account{}, resource.Version, k.namespace, k.name)
	switch {
	case err != nil && catalog.Denies(err, resource.Version.GroupResource(), k.name):
		s.drop(k, false)
		return 0
	case err != nil:
		return v.troubled(fmt.Errorf("read: %w", err))
	case object.GetUID() != k.uid:
		s.drop(k, false)
		return 0
	}
	v.object = object
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
	v.track.deadline = v.due()
	return v.terminating(ctx)
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
	case v.f.frees():
		return v.release(ctx, Released, "its finalizer's resource is deleted (onRemoval: Release), whatever was left to be done")
	case v.f.Enforce && v.f.FreeAtDeadline && v.overdue():
		return v.release(ctx, Released, fmt.Sprintf("its deadline of %s is over (onDeadline: Release), whatever was left to be done", v.f.Longest))
	}
	if first := v.mustGoFirst(); first != "" {
		return v.settle(Waits, "it waits for the finalizer "+first+" to be gone (after)", 0)
	}
	if v.f.Asker == nil {
		return v.settle(NotReady, v.f.NotReady, 0)
	}
	var err error
	if v.namespace, err = v.Reader.Namespace(ctx, v.key.namespace); err != nil {
		return v.troubled(fmt.Errorf("read its namespace: %w", err))
	}
	meant, err := v.meant(ctx)
	switch {
	case err != nil:
		return v.troubled(err)
	case !meant:
		return v.settle(Unmeant, fmt.Sprintf("%s does not select it: change that, or take the finalizer off", v.f), 0)
	}
	v.recall()
	face, now := fingerprint(v.object), v.Now()
	if m := v.memory; m.Failed != "" && m.Of == v.identity(face) {
		return v.settle(Failed, m.Failed, 0)
	}
	t := &v.track
	if t.asked != nil && t.asked.Same(v.f.Finalizer) {
		soonest := t.due
		if face != t.face { // it is asked at once, but not all the time
			soonest = t.last.Add(min(time.Second, v.f.RetryInitial))
		}
		if soonest.IsZero() || now.Before(soonest) {
			return v.later(soonest)
		}
	}
	t.asked, t.face, t.last = v.f.Finalizer, face, now
	return v.ask(ctx)
}

// recall finds what is remembered of the object.
func (v *visitor) recall() {
	if v.remembers() {
		v.memory = memoryOf(v.object, v.entry)
	} else {
		v.memory = v.track.memory
	}
}

// later leaves the object until it is due. If its deadline has come meanwhile, that
// is told.
func (v *visitor) later(due time.Time) time.Duration {
	t := &v.track
	if _, is := stuck[t.reason]; is || !v.overdue() {
		return v.again(due)
	}
	after := time.Duration(0)
	if !due.IsZero() {
		after = due.Sub(v.Now())
	}
	return v.settle(t.reason, t.message, after)
}

// mustGoFirst is a finalizer that the object has and that goes first.
func (v *visitor) mustGoFirst() string {
	for _, entry := range v.f.After {
		if entry != v.entry && slices.Contains(v.object.GetFinalizers(), entry) {
			return entry
		}
	}
	return ""
}

// identity is what a failure is about: it stands until any of it changes.
func (v *visitor) identity(face string) string {
	return fmt.Sprintf("%s %d %.12s %s", v.f.UID, v.f.Generation, v.f.Digest, face)
}

// fingerprint tells two states of an object apart, by all that is not our own doing.
func fingerprint(o *unstructured.Unstructured) string {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	annotations := o.GetAnnotations()
	delete(annotations, Annotation)
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
	data, err := json.Marshal(o.Object)
	if err != nil {
		return err.Error() // it is as good as any
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// meant reports whether the finalizer is for the object.
func (v *visitor) meant(ctx context.Context) (bool, error) {
	p := v.f.Policy
	switch {
	case !p.Selects(v.resource.Version.GroupResource()), p.Namespace != "" && p.Namespace != v.key.namespace:
		return false, nil
	case p.Namespaces != nil && !p.Namespaces.Empty() && !p.Namespaces.Matches(v.namespace.Labels):
		return false, nil
	case p.Objects != nil && !p.Objects.Matches(labels.Set(v.object.GetLabels())):
		return false, nil
	case p.Matches == nil:
		return true, nil
	}
	seen, withheld, err := v.seenBy(ctx)
	if err == nil && withheld != "" {
		err = fmt.Errorf("%s", withheld)
	}
	if err != nil {
		return false, fmt.Errorf("whether its matchConditions hold is not known: %w", err)
	}
	return p.Matches(ctx, seen.Object)
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

// settle keeps the object for a reason, and says when to look again: after a while,
// or with 0 when something changes.
func (v *visitor) settle(reason Reason, message string, after time.Duration) time.Duration {
	return v.conclude(Note{Reason: reason, Message: message}, after)
}

// troubled keeps the object since it could not be read or written.
func (v *visitor) troubled(err error) time.Duration {
	if v.object == nil {
		v.track = v.tracked(v.key)
		v.track.object.Namespace, v.track.object.Name, v.track.object.UID = v.key.namespace, v.key.name, v.key.uid
		v.track.object.Kind = v.resource.GroupVersionKind()
	}
	v.track.failures++
	return v.conclude(Note{Reason: Troubled, Message: err.Error(), Err: err}, v.backoff())
}

// backoff is how long to wait after a failure.
func (v *visitor) backoff() time.Duration {
	wait := v.f.RetryInitial
	for i := 1; i < v.track.failures && wait < v.f.RetryMax; i++ {
		wait *= 2
	}
	return min(wait, v.f.RetryMax)
}

// conclude tells what was decided, and keeps it.
func (v *visitor) conclude(n Note, after time.Duration) time.Duration {
	t := &v.track
	n.Finalizer, n.Object = v.f.Finalizer, t.object
	if after > 0 {
		n.Until = v.Now().Add(after)
	}
	if _, is := stuck[n.Reason]; !is && v.overdue() {
		n.Reason = Overdue
		n.Message = strings.TrimSuffix(fmt.Sprintf("its deadline of %s is over (onDeadline: Hold): %s", v.f.Longest, n.Message), ": ")
	}
	t.reason, t.message, t.due = n.Reason, n.Message, n.Until
	v.keep(*t)
	v.Note(n)
	return v.again(t.due)
}

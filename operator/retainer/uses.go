package retainer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/candidate"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/follow"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/references"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

const (
	// proofRetry is when a failed proof that a type is not served is repeated.
	proofRetry = 10 * time.Second

	// maxListed is how long a live list of everything that may refer to the objects of a namespace is used.
	maxListed = 10 * time.Second
)

// uses is what refers to others, in all namespaces.
type uses struct {
	kinds   map[schema.GroupKind]bool                // that can refer to others and that are served
	unread  map[schema.GroupKind]bool                // of those, the ones that were not listed yet
	readers map[schema.GroupKind][]references.Reader // of policies, for custom resources
	from    string                                   // what these readers were made of
	missing error                                    // a custom resource that is not served

	unproven error // whether other kinds are served; nil: it is proven that they are not
	index    references.Index
	of       map[schema.GroupKind]map[types.UID]struct{}
	released []references.Reference
	since    time.Time // when everything was listed; zero: it was not yet
}

// refersTo reports whether others can refer to objects that the policy selects.
func (p *plan) refersTo() bool {
	for kind := range p.kinds {
		if references.Referred(kind) {
			return true
		}
	}
	return false
}

// setUses has uses followed if a policy selects what others refer to. The caller holds mu.
func (r *Retainer) setUses(served *catalog.Catalog) {
	needed := false
	for _, p := range r.plans {
		needed = needed || p.problem == "" && p.refersTo()
	}
	if !needed {
		r.uses = nil
		return
	}
	if r.uses == nil {
		r.uses = newUses()
	}
	r.setReaders(served)
	for _, kind := range r.uses.referring() {
		_, is := served.Preferred(kind)
		switch {
		case is && !r.uses.kinds[kind]:
			r.uses.kinds[kind], r.uses.unread[kind] = true, true
		case !is && r.uses.kinds[kind]:
			r.uses.remove(kind)
			r.usesChanged()
		}
	}
}

// newUses returns uses of which nothing is known yet.
func newUses() *uses {
	return &uses{
		kinds: map[schema.GroupKind]bool{}, unread: map[schema.GroupKind]bool{}, of: map[schema.GroupKind]map[types.UID]struct{}{}, unproven: errDiscovering,
	}
}

var errDiscovering = errors.New("types are being discovered")

// setReaders sets where custom resources refer to others. If that has changed, everything is listed again: a list in progress has passed
// some objects to the readers of before. The caller holds mu.
func (r *Retainer) setReaders(served *catalog.Catalog) {
	readers, missing := policyset.Readers(r.policies(), served)
	var from []string
	for _, p := range r.plans {
		for _, f := range p.Spec.References {
			from = append(from, fmt.Sprintf("%s: %+v", p.Object.GetUID(), f))
		}
	}
	slices.Sort(from)
	if now := fmt.Sprint(from, slices.Sorted(kindNames(readers))); now != r.uses.from {
		if r.uses.from != "" {
			r.uses = newUses()
		}
		r.uses.from = now
		r.usesChanged()
	}
	r.uses.readers, r.uses.missing = readers, missing
}

func kindNames(of map[schema.GroupKind][]references.Reader) iter.Seq[string] {
	return func(yield func(string) bool) {
		for kind := range of {
			if !yield(kind.String()) {
				return
			}
		}
	}
}

// policies yields the policies in force. The caller holds mu.
func (r *Retainer) policies() iter.Seq[*policyset.Retention] {
	return func(yield func(*policyset.Retention) bool) {
		for _, p := range r.plans {
			if !yield(p.Retention) {
				return
			}
		}
	}
}

// referring returns the kinds that can refer to others.
func (u *uses) referring() []schema.GroupKind {
	kinds := references.Kinds()
	for kind := range u.readers {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// remove forgets a kind that discovery does not find any more. Until it is proven that it is not served, nothing is known.
func (u *uses) remove(kind schema.GroupKind) {
	for uid := range u.of[kind] {
		u.index.Forget(uid)
	}
	delete(u.of, kind)
	delete(u.kinds, kind)
	delete(u.unread, kind)
	u.unproven, u.since = errDiscovering, time.Time{}
}

// proveAbsent proves that the kinds that discovery has not seen are not served. It returns when that is to be tried again; 0: not.
func (r *Retainer) proveAbsent(ctx context.Context, served *catalog.Catalog) time.Duration {
	r.mu.Lock()
	u := r.uses
	r.mu.Unlock()
	if u == nil {
		return 0
	}
	err := r.absent(ctx, served)
	r.mu.Lock()
	defer r.mu.Unlock()
	u.unproven = err
	u.complete(r.options.Now())
	r.usesChanged()
	if err != nil {
		return proofRetry
	}
	return 0
}

// absent returns nil if the kinds that can refer to others and that discovery has not seen are not served.
func (r *Retainer) absent(ctx context.Context, served *catalog.Catalog) error {
	for _, kind := range references.Kinds() {
		if _, is := served.Preferred(kind); is {
			continue
		}
		absent, err := r.options.Absent(ctx, kind)
		switch {
		case err != nil:
			return fmt.Errorf("whether %s is served: %w", kind, err)
		case !absent:
			return fmt.Errorf("%s is served, and not followed yet", kind)
		}
	}
	return nil
}

// complete notes that everything is known, if it is.
func (u *uses) complete(now time.Time) {
	if len(u.unread) == 0 && u.unproven == nil && u.missing == nil && u.since.IsZero() {
		u.since = now
	}
}

// put shows an object, and reports whether that changes what is used.
func (u *uses) put(o *unstructured.Unstructured) (changed bool) {
	kind := o.GroupVersionKind().GroupKind()
	of := u.of[kind]
	if of == nil {
		of = map[types.UID]struct{}{}
		u.of[kind] = of
	}
	of[o.GetUID()] = struct{}{}
	released, changed := u.index.Put(o, u.readers[kind]...)
	u.released = append(u.released, released...)
	return changed
}

// forget forgets an object, and reports whether that changes what is used.
func (u *uses) forget(kind schema.GroupKind, uid types.UID) bool {
	if _, known := u.of[kind][uid]; !known {
		return false
	}
	delete(u.of[kind], uid)
	unread := u.index.IsUnread(uid)
	released := u.index.Forget(uid)
	u.released = append(u.released, released...)
	return unread || len(released) != 0
}

// listed notes that a kind was listed: what was not seen is gone. After a gap, uses may have begun and ended unseen.
func (u *uses) listed(kind schema.GroupKind, seen map[types.UID]struct{}, now time.Time, gap bool) {
	for uid := range u.of[kind] {
		if _, is := seen[uid]; !is {
			u.forget(kind, uid)
		}
	}
	delete(u.unread, kind)
	if gap {
		u.since = time.Time{}
	}
	u.complete(now)
}

// take returns what was released, and forgets it.
func (u *uses) take() []references.Reference {
	released := u.released
	u.released = nil
	return released
}

// unknown returns why it is not known what is used; "" if it is.
func (u *uses) unknown() string {
	switch {
	case u.unproven != nil:
		return u.unproven.Error()
	case u.missing != nil:
		return u.missing.Error()
	case len(u.unread) != 0:
		return fmt.Sprintf("%d types are not listed yet", len(u.unread))
	case u.index.Err() != nil:
		return u.index.Err().Error()
	case u.since.IsZero():
		return errDiscovering.Error()
	default:
		return ""
	}
}

// moment returns what is known now. The caller holds mu until it is not used any more.
func (r *Retainer) moment(now time.Time) retention.Moment {
	m := retention.Moment{Now: now}
	if u := r.uses; u != nil && u.unknown() == "" {
		m.Since = u.since
		m.Uses = candidate.Uses{Complete: true, User: userIn(&u.index)}
	}
	return m
}

func userIn(x *references.Index) func(schema.GroupKind, string, string) string {
	return func(kind schema.GroupKind, namespace, name string) string {
		return x.User(references.Kind(kind.Kind), namespace, name)
	}
}

// liveUses are what refers to the objects of namespaces, as lists have just shown it.
type liveUses struct {
	*Retainer
	of map[string]listedUses
}

type listedUses struct {
	at    time.Time
	index *references.Index
	err   error
}

// user returns what refers to an object now; "" if nothing does. With an error, it is not known.
func (l *liveUses) user(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	namespace := o.GetNamespace()
	known, is := l.of[namespace]
	if !is || time.Since(known.at) > maxListed {
		known = listedUses{at: time.Now(), index: &references.Index{}}
		known.err = l.list(ctx, namespace, known.index)
		l.of[namespace] = known
	}
	if known.err != nil {
		return "", known.err
	}
	return known.index.User(references.Kind(o.GetKind()), namespace, o.GetName()), nil
}

// list lists everything that may refer to objects of a namespace.
func (l *liveUses) list(ctx context.Context, namespace string, into *references.Index) error {
	served := l.options.Catalog()
	if err := l.absent(ctx, served); err != nil {
		return err
	}
	l.mu.Lock()
	u := l.uses
	if u == nil {
		l.mu.Unlock()
		return errors.New("what refers to objects is not followed any more")
	}
	kinds, readers, missing := u.referring(), maps.Clone(u.readers), u.missing
	l.mu.Unlock()
	if missing != nil {
		return missing
	}
	for _, kind := range kinds {
		resource, is := served.Preferred(kind)
		if !is {
			continue
		}
		in := namespace
		if !resource.Namespaced || references.AcrossNamespaces(kind) {
			in = ""
		}
		if _, err := follow.List(ctx, l.options.Lister, resource, in, func(o *unstructured.Unstructured) { into.Put(o, readers[kind]...) }); err != nil {
			return fmt.Errorf("what refers to objects of namespace %s is not known: %w", namespace, err)
		}
	}
	if err := into.Err(); err != nil {
		return fmt.Errorf("what refers to objects of namespace %s is not known: %w", namespace, err)
	}
	return nil
}

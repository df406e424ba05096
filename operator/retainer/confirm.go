package retainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/follow"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/references"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

// keptRetry is when it is tried again to remove what another policy keeps, or what was in use a moment ago.
const keptRetry = time.Minute

// keptBecause returns why this policy does not remove an object, as it was just read, or why another retention policy keeps it.
func (t *turn) keptBecause(ctx context.Context, o *unstructured.Unstructured, d retention.Decision) (string, error) {
	namespace, err := t.namespaceNow(ctx, o.GetNamespace())
	if err != nil {
		return "", err
	}
	return t.decidedAgain(o, d, namespace), nil
}

// usedBy returns what uses an object now; "" if nothing does.
func (t *turn) usedBy(ctx context.Context, o *unstructured.Unstructured, d retention.Decision) (string, error) {
	if !references.Referred(o.GroupVersionKind().GroupKind()) {
		return "", nil
	}
	user, err := t.live.user(ctx, o)
	if user == "" && err == nil {
		user, err = t.userSeen(o)
	}
	if user != "" {
		t.later(d.UID, keptRetry)
		return "used by " + user, nil
	}
	return "", err
}

// userSeen returns what refers to an object as the watches have shown it, since the lists of a turn may be seconds old.
func (t *turn) userSeen(o *unstructured.Unstructured) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.moment(t.options.Now())
	if !m.Uses.Complete {
		return "", errors.New("what refers to objects is not known now")
	}
	return m.Uses.User(o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()), nil
}

// later has the removal of an object tried again after a delay, although it has not failed.
func (t *turn) later(uid types.UID, delay time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p.postpone(uid, t.options.Now().Add(delay))
}

// namespaceNow returns the namespace of an object as it is now.
func (t *turn) namespaceNow(ctx context.Context, name string) (modulecall.Namespace, error) {
	if name == "" || !t.p.SelectsByNamespace() {
		return modulecall.Namespace{}, nil
	}
	n, err := t.options.Reader.Namespace(ctx, name)
	if err != nil {
		return n, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return n, nil
}

// decidedAgain returns why an object, as it was just read, is not removed by this policy, or is kept by another one (P-25).
func (t *turn) decidedAgain(o *unstructured.Unstructured, d retention.Decision, namespace modulecall.Namespace) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := t.p.survey.Put(o)
	switch {
	case o.GetDeletionTimestamp() != nil:
		t.p.skipped[d.UID] = true
		return "it is being deleted"
	case changed:
		t.p.skipped[d.UID] = true
		t.p.change(t.options.Now())
		signal(t.wake)
		return "it has changed"
	case t.p.SelectsByNamespace() && !t.p.Policy.NamespaceSelector.Matches(labels.Set(namespace.Labels)):
		t.p.skipped[d.UID] = true
		return "its namespace is not selected any more"
	}
	for other := range t.of(o.GroupVersionKind().GroupKind(), o.GetNamespace()) {
		if other == t.p || !other.Enforces() {
			continue
		}
		if why := other.survey.Keeps(o); why != "" {
			t.p.postpone(d.UID, t.options.Now().Add(keptRetry))
			t.p.keptBy = fmt.Sprintf("%s: %s", d.Object, why)
			return why
		}
	}
	return ""
}

// confirmNumbers compares what limits of numbers depend on with what exists now: they must not count objects that are gone, or that belong
// to another group now. If there are such objects, the policy is evaluated again before anything is removed. New ones make no difference:
// with more objects, the oldest are removed as well. It reports whether those that are known are the same.
func (t *turn) confirmNumbers(ctx context.Context) (same bool, err error) {
	same = true
	served := t.options.Catalog()
	t.mu.Lock()
	kinds := slices.Collect(maps.Keys(t.p.kinds))
	t.mu.Unlock()
	for _, kind := range kinds {
		resource, is := served.Preferred(kind)
		if !is {
			continue
		}
		live := map[types.UID]bool{}
		if _, err := follow.List(ctx, t.options.Lister, resource, t.p.Key.Namespace, func(o *unstructured.Unstructured) {
			live[o.GetUID()] = true
			same = t.isSame(o) && same
		}); err != nil {
			return false, fmt.Errorf("confirm how many objects there are: %w", err)
		}
		same = t.forgetOthers(kind, live) && same
	}
	if !same {
		t.mu.Lock()
		t.p.change(t.options.Now())
		t.p.pending = nil
		t.mu.Unlock()
		signal(t.wake)
	}
	return same, nil
}

// isSame notes an object as it is now, and reports whether it is new, or the same as far as limits are concerned.
func (t *turn) isSame(o *unstructured.Unstructured) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.p.survey.Has(o.GetUID())
	return !t.p.survey.Put(o) || !known
}

// forgetOthers forgets the objects of a kind that do not exist, and reports whether there were none.
func (t *turn) forgetOthers(kind schema.GroupKind, live map[types.UID]bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	same := true
	for o := range t.p.survey.Of(kind) {
		if !live[o.UID] {
			t.p.survey.Forget(o.UID)
			same = false
		}
	}
	return same
}

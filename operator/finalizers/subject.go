package finalizers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// A subject is the object of one reconciliation, and what the finalizer's module may see of it.
type subject struct {
	*controller
	f         activeFinalizer
	key       key
	resource  catalog.Resource
	object    *unstructured.Unstructured // as read; nil: the read failed
	namespace modulecall.Namespace       // of the object, set by isSelected
}

// target returns the object for records and for the steps of the writer.
func (s *subject) target() graph.Object {
	return graph.ObjectOf(s.resource.GroupVersionKind(), s.object)
}

// origin returns the component that writes.
func (s *subject) origin() writer.Origin {
	if s.f.BuiltIn {
		return writer.Archive
	}
	return writer.Finalizers
}

// cause returns why the object is written.
func (s *subject) cause() writer.Cause { return writer.Cause{Policy: s.f.String()} }

// deadline returns the object's deadline; zero: none.
func (s *subject) deadline() time.Time {
	if s.f.Deadline == 0 {
		return time.Time{}
	}
	return s.object.GetDeletionTimestamp().Add(s.f.Deadline)
}

// notFound reports whether the error means that the object does not exist.
func (s *subject) notFound(err error) bool {
	return catalog.ConfirmsNotFound(err, s.resource.Version.GroupResource(), s.key.name)
}

// buildRequest builds the module's request.
func (s *subject) buildRequest(ctx context.Context, item *pendingObject, state json.RawMessage) (r hostabi.Request, err error) {
	o := item.object
	r = hostabi.Request{
		APIVersion: hostabi.Version, Hook: hostabi.HookFinalize, RequestedPropagation: modulecall.RequestedPropagation(o),
		Policy: hostabi.Policy{Name: s.f.Name, Namespace: s.f.Namespace, Settings: s.f.Settings},
		Time:   s.Now().UTC().Truncate(time.Second), Attempt: item.attempt, State: state,
		NamespaceTerminating: s.namespace.Terminating,
		IdempotencyKey:       fmt.Sprintf("%s/%s/%s", o.UID, hostabi.HookFinalize, s.entry),
	}
	for _, ref := range o.Owners {
		r.Owners = append(r.Owners, hostabi.Owner{Status: hostabi.OwnerUnknown, Reference: modulecall.Reference(ref)})
	}
	if d := item.deadline; !d.IsZero() {
		d = d.UTC()
		r.Deadline = &d
	}
	r.ServiceAccountMissing = s.accountMissing(ctx)
	if r.Object, err = modulecall.ObjectOf(identityOf(s.object)); err != nil {
		return r, err
	}
	err = modulecall.AddObject(&r, s.f.Needs, func() (*unstructured.Unstructured, error) {
		visible, err := s.visibleObject(ctx)
		if err != nil {
			return nil, err
		}
		return withoutStateAnnotation(visible), nil
	})
	return r, err
}

// identityOf returns the part of an object that needs no permission: its identity, its
// finalizers and its deletionTimestamp.
func identityOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	b := &unstructured.Unstructured{Object: map[string]any{}}
	b.SetGroupVersionKind(o.GroupVersionKind())
	b.SetNamespace(o.GetNamespace())
	b.SetName(o.GetName())
	b.SetUID(o.GetUID())
	b.SetResourceVersion(o.GetResourceVersion())
	b.SetFinalizers(o.GetFinalizers())
	b.SetDeletionTimestamp(o.GetDeletionTimestamp())
	return b
}

// withoutStateAnnotation returns the object without the state annotation: a module receives its own state
// in the request.
func withoutStateAnnotation(o *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := o.GetAnnotations() // a copy
	if _, own := annotations[objectstate.FinalizersAnnotation]; !own {
		return o
	}
	o = o.DeepCopy()
	delete(annotations, objectstate.FinalizersAnnotation)
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
	return o
}

// visibleObject returns the object as the finalizer's module may read it: a namespaced finalizer
// reads as its service account. The error is a *modulecall.WithheldError if that account may
// not read the object.
func (s *subject) visibleObject(ctx context.Context) (*unstructured.Unstructured, error) {
	own := func() (*unstructured.Unstructured, error) { return s.object, nil }
	return modulecall.Visible(s.f.Policy, s.f.String(), own, func(account policies.ServiceAccount) (*unstructured.Unstructured, error) {
		o, err := s.Reader.Get(ctx, account, s.resource.Version, s.key.namespace, s.key.name)
		if err == nil && o.GetUID() != s.key.uid {
			return nil, fmt.Errorf("read object as %s/%s: the UID has changed", account.Namespace, account.Name)
		}
		return o, err
	})
}

var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// An accountLookup is a cached lookup of the finalizer's service account.
type accountLookup struct {
	account policies.ServiceAccount
	time    time.Time
	missing bool
}

// accountCacheTTL is how long a lookup is cached.
const accountCacheTTL = 5 * time.Second

// accountMissing reports whether the finalizer's service account is known not to
// exist. Other read errors prove nothing.
func (s *subject) accountMissing(ctx context.Context) bool {
	a, now := s.f.ServiceAccount, s.Now()
	if a == (policies.ServiceAccount{}) {
		return false
	}
	s.mu.Lock()
	seen := s.accountLookup
	s.mu.Unlock()
	if seen.account == a && now.Sub(seen.time) < accountCacheTTL {
		return seen.missing
	}
	_, err := s.Reader.Get(ctx, policies.ServiceAccount{}, serviceAccounts, a.Namespace, a.Name)
	seen = accountLookup{account: a, time: now, missing: err != nil && catalog.ConfirmsNotFound(err, serviceAccounts.GroupResource(), a.Name)}
	s.mu.Lock()
	s.accountLookup = seen
	s.mu.Unlock()
	return seen.missing
}

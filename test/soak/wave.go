package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	secrets    = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
)

// wave is a set of objects in its own namespace, with its own custom type. It has the expected
// state of each object.
type wave struct {
	*testbed
	name   string
	custom schema.GroupVersionKind
	plural string

	count        int
	all          []*unstructured.Unstructured // as created
	deletes      []deletion
	held         []*unstructured.Unstructured // by a policy with a fault, until a label is removed
	toDelete     []*unstructured.Unstructured // must be deleted in the end
	stays        []remaining
	wantRequests []string // the requests that the site must have received
}

// deletion is a delete by the wave itself.
type deletion struct {
	object *unstructured.Unstructured
	policy metav1.DeletionPropagation
}

// remaining is an object that stays, with exactly these owners.
type remaining struct {
	object *unstructured.Unstructured
	owners []string
}

// objectSpec describes an object to create.
type objectSpec struct {
	owners []metav1.OwnerReference
	labels map[string]string
}

func (w *wave) create(ctx context.Context, kind schema.GroupVersionKind, th objectSpec) (*unstructured.Unstructured, error) {
	w.count++
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(w.name)
	o.SetName(fmt.Sprintf("%s-%s-%d", w.name, strings.ToLower(kind.Kind), w.count)) // unique in the cluster
	o.SetOwnerReferences(th.owners)
	o.SetLabels(th.labels)
	if err := w.api.create(ctx, o); err != nil {
		return nil, fmt.Errorf("create %s %s: %w", kind.Kind, o.GetName(), err)
	}
	w.made.Add(1)
	w.all = append(w.all, o)
	return o, nil
}

// blockingRefs returns blocking references to owners.
func blockingRefs(owners ...*unstructured.Unstructured) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, o := range owners {
		refs = append(refs, metav1.OwnerReference{
			APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), BlockOwnerDeletion: ptr.To(true),
		})
	}
	return refs
}

// wave creates objects, checks that they are unchanged, deletes some, and checks the
// results.
func (s *testbed) wave(ctx context.Context, lane, n int) error {
	name := fmt.Sprintf("soak-%d-%d", lane, n)
	w := &wave{testbed: s, name: name, plural: fmt.Sprintf("things%dx%d", lane, n)}
	w.custom = kindOf(w.plural)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"begin", w.begin}, {"make objects", w.createAll}, {"wait for the operator", w.waitUntilIdle}, {"check all", w.checkUnchanged},
		{"delete", w.deleteAll}, {"wait for the operator", w.waitUntilIdle}, {"check held objects", w.checkHeld}, {"release held objects", w.releaseHeld},
		{"wait for the end", w.waitForDeletions}, {"wait for the operator", w.waitUntilIdle}, {"check remaining objects", w.checkRemaining}, {"end", w.end},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("wave %s: %s: %w", name, step.name, err)
		}
	}
	return nil
}

// begin creates the namespace and the type.
func (w *wave) begin(ctx context.Context) error {
	if err := w.api.create(ctx, namespace(w.name)); err != nil {
		return err
	}
	if err := w.api.create(ctx, definition(w.plural)); err != nil {
		return err
	}
	probe := &unstructured.UnstructuredList{}
	probe.SetGroupVersionKind(w.custom)
	return eventually(ctx, func() error { return w.api.client.List(ctx, probe, client.InNamespace(w.name)) })
}

// createAll creates the objects, as many of each case as the size says.
func (w *wave) createAll(ctx context.Context) error {
	for range w.size {
		for _, sort := range w.cases() {
			if err := sort(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitUntilIdle waits until the operator has processed all earlier events: a new pair of objects
// is collected after them; twice, since there are several workers.
func (w *wave) waitUntilIdle(ctx context.Context) error {
	for range 2 {
		owner, err := w.create(ctx, configMaps, objectSpec{})
		if err != nil {
			return err
		}
		dependent, err := w.create(ctx, secrets, objectSpec{owners: blockingRefs(owner)})
		if err != nil {
			return err
		}
		w.all = w.all[:len(w.all)-2]
		if err := w.api.delete(ctx, owner, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		w.waitForDeletion(ctx, dependent)
	}
	return nil
}

// checkUnchanged checks that all objects are unchanged.
func (w *wave) checkUnchanged(ctx context.Context) error {
	for _, o := range w.all {
		live, err := w.api.get(ctx, o)
		switch {
		case err != nil:
			return err
		case live == nil:
			w.problemf("%s was lost before any delete", nameOf(o))
		case live.GetDeletionTimestamp() != nil:
			w.problemf("%s is terminating before any delete", nameOf(o))
		case !slices.Equal(ownersOf(live), ownersOf(o)):
			w.problemf("%s has owners %v, want %v", nameOf(o), ownersOf(live), ownersOf(o))
		}
		w.checked.Add(1)
	}
	return nil
}

func (w *wave) deleteAll(ctx context.Context) error {
	for _, d := range w.deletes {
		if err := w.api.delete(ctx, d.object, d.policy); err != nil {
			return err
		}
	}
	return nil
}

// checkHeld checks that objects kept by a policy with a fault are unchanged.
func (w *wave) checkHeld(ctx context.Context) error {
	for _, o := range w.held {
		live, err := w.api.get(ctx, o)
		if err != nil {
			return err
		}
		if live == nil || live.GetDeletionTimestamp() != nil || !slices.Equal(ownersOf(live), ownersOf(o)) {
			w.problemf("%s is %s, want it kept by a policy with a fault", nameOf(o), stateOf(live))
		}
	}
	return nil
}

func (w *wave) releaseHeld(ctx context.Context) error {
	for _, o := range w.held {
		if err := w.api.removeLabel(ctx, o, collectLabel); err != nil {
			return err
		}
	}
	return nil
}

// waitForDeletions waits until all objects are gone that must be deleted.
func (w *wave) waitForDeletions(ctx context.Context) error {
	for _, o := range slices.Concat(w.toDelete, w.held) {
		w.waitForDeletion(ctx, o)
	}
	for _, name := range w.wantRequests {
		if !w.site.receivedOnce(name) {
			w.problemf("%s was deleted without a request to the site", name)
		}
	}
	return ctx.Err()
}

// waitForDeletion waits until an object is gone, and reports it as stuck otherwise.
func (w *wave) waitForDeletion(ctx context.Context, o *unstructured.Unstructured) {
	err := eventually(ctx, func() error {
		live, err := w.api.get(ctx, o)
		if err == nil && live != nil {
			err = fmt.Errorf("object is %s", stateOf(live))
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.problemf("%s is stuck after %s: %v", nameOf(o), timeout, err)
	}
}

// checkRemaining checks that the remaining objects exist with exactly their expected owners.
func (w *wave) checkRemaining(ctx context.Context) error {
	for _, r := range w.stays {
		last := ""
		err := eventually(ctx, func() error {
			live, err := w.api.get(ctx, r.object)
			if err != nil {
				return err
			}
			last = stateOf(live)
			if live == nil || live.GetDeletionTimestamp() != nil {
				return nil // permanent
			}
			if !slices.Equal(ownersOf(live), r.owners) {
				return errors.New(last)
			}
			last = ""
			return nil
		})
		if ctx.Err() != nil {
			return err
		}
		if last != "" {
			w.problemf("%s is %s, want it kept with owners %v", nameOf(r.object), last, r.owners)
		}
		w.checked.Add(1)
	}
	return nil
}

// waitForNoOwners waits until an object has no owners.
func (w *wave) waitForNoOwners(ctx context.Context, o *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		live, err := w.api.get(ctx, o)
		switch {
		case err != nil:
			return err
		case live == nil || live.GetDeletionTimestamp() != nil:
			return fmt.Errorf("%s is %s", nameOf(o), stateOf(live))
		case len(live.GetOwnerReferences()) == 0:
			return nil
		case !pause(ctx, ctx, 50*time.Millisecond):
			return ctx.Err()
		}
	}
}

// end deletes the type with its objects, and the namespace.
func (w *wave) end(ctx context.Context) error {
	d := definition(w.plural)
	if err := w.api.delete(ctx, d, ""); err != nil {
		return err
	}
	if err := w.api.waitForDeletion(ctx, d); err != nil {
		w.problemf("type %s is stuck: %v", w.plural, err)
	}
	ns := namespace(w.name)
	if err := w.api.delete(ctx, ns, ""); err != nil {
		return err
	}
	if err := w.api.waitForDeletion(ctx, ns); err != nil {
		w.problemf("namespace %s is stuck: %v", w.name, err)
	}
	return ctx.Err()
}

func nameOf(o *unstructured.Unstructured) string { return o.GetKind() + " " + o.GetName() }

func ownersOf(o *unstructured.Unstructured) []string {
	var names []string
	for _, ref := range o.GetOwnerReferences() {
		names = append(names, ref.Name)
	}
	return names
}

func stateOf(o *unstructured.Unstructured) string {
	switch {
	case o == nil:
		return "gone"
	case o.GetDeletionTimestamp() != nil:
		return fmt.Sprintf("terminating, with finalizers %v and owners %v", o.GetFinalizers(), ownersOf(o))
	default:
		return fmt.Sprintf("present, with finalizers %v, owners %v and labels %v", o.GetFinalizers(), ownersOf(o), o.GetLabels())
	}
}

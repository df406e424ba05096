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

// wave is a set of objects in a namespace, and a type, of its own. It knows what has to
// become of each of them.
type wave struct {
	*stage
	name   string
	custom schema.GroupVersionKind
	plural string

	count   int
	all     []*unstructured.Unstructured // as they were made
	deletes []deletion
	held    []*unstructured.Unstructured // by a policy at fault, until a label is taken off them
	goes    []*unstructured.Unstructured // in the end
	stays   []remaining
	sent    []string // what the site has to have been asked to delete
}

// deletion is what the wave itself deletes.
type deletion struct {
	object *unstructured.Unstructured
	how    metav1.DeletionPropagation
}

// remaining is an object that stays, with just these owners.
type remaining struct {
	object *unstructured.Unstructured
	owners []string
}

// thing is an object to be made.
type thing struct {
	owners []metav1.OwnerReference
	labels map[string]string
}

func (w *wave) make(ctx context.Context, kind schema.GroupVersionKind, th thing) (*unstructured.Unstructured, error) {
	w.count++
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(w.name)
	o.SetName(fmt.Sprintf("%s-%s-%d", w.name, strings.ToLower(kind.Kind), w.count)) // of which there is no other in the cluster, ever
	o.SetOwnerReferences(th.owners)
	o.SetLabels(th.labels)
	if err := w.api.create(ctx, o); err != nil {
		return nil, fmt.Errorf("create %s %s: %w", kind.Kind, o.GetName(), err)
	}
	w.made.Add(1)
	w.all = append(w.all, o)
	return o, nil
}

// owns returns references that block their owners.
func owns(owners ...*unstructured.Unstructured) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, o := range owners {
		refs = append(refs, metav1.OwnerReference{
			APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), BlockOwnerDeletion: ptr.To(true),
		})
	}
	return refs
}

// wave makes objects, sees that nothing happens to them, deletes some, and sees that
// what has to becomes of each.
func (s *stage) wave(ctx context.Context, lane, n int) error {
	name := fmt.Sprintf("soak-%d-%d", lane, n)
	w := &wave{stage: s, name: name, plural: fmt.Sprintf("things%dx%d", lane, n)}
	w.custom = kindOf(w.plural)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"begin", w.begin}, {"make objects", w.makeAll}, {"wait for the operator", w.calm}, {"look at all", w.unharmed},
		{"delete", w.deleteAll}, {"wait for the operator", w.calm}, {"look at what is held", w.holds}, {"let go what is held", w.letGo},
		{"wait for the end", w.settled}, {"wait for the operator", w.calm}, {"look at what stays", w.remains}, {"end", w.end},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("wave %s: %s: %w", name, step.name, err)
		}
	}
	return nil
}

// begin makes the namespace and the type.
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

// makeAll makes what there is, of each sort as many as the size says.
func (w *wave) makeAll(ctx context.Context) error {
	for range w.size {
		for _, sort := range w.sorts() {
			if err := sort(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// calm waits until the operator has come to what there was before: a pair that is made
// now is collected after it, twice, since it works on many things at a time.
func (w *wave) calm(ctx context.Context) error {
	for range 2 {
		owner, err := w.make(ctx, configMaps, thing{})
		if err != nil {
			return err
		}
		dependent, err := w.make(ctx, secrets, thing{owners: owns(owner)})
		if err != nil {
			return err
		}
		w.all = w.all[:len(w.all)-2]
		if err := w.api.delete(ctx, owner, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		w.gone(ctx, dependent)
	}
	return nil
}

// unharmed sees that everything is as it was made.
func (w *wave) unharmed(ctx context.Context) error {
	for _, o := range w.all {
		live, err := w.api.live(ctx, o)
		switch {
		case err != nil:
			return err
		case live == nil:
			w.wrong("%s was lost, and nobody had deleted anything yet", nameOf(o))
		case live.GetDeletionTimestamp() != nil:
			w.wrong("%s is being deleted, and nobody had deleted anything yet", nameOf(o))
		case !slices.Equal(ownersOf(live), ownersOf(o)):
			w.wrong("%s is owned by %v, and was by %v", nameOf(o), ownersOf(live), ownersOf(o))
		}
		w.checked.Add(1)
	}
	return nil
}

func (w *wave) deleteAll(ctx context.Context) error {
	for _, d := range w.deletes {
		if err := w.api.delete(ctx, d.object, d.how); err != nil {
			return err
		}
	}
	return nil
}

// holds sees that what a policy at fault keeps is there, as it was.
func (w *wave) holds(ctx context.Context) error {
	for _, o := range w.held {
		live, err := w.api.live(ctx, o)
		if err != nil {
			return err
		}
		if live == nil || live.GetDeletionTimestamp() != nil || !slices.Equal(ownersOf(live), ownersOf(o)) {
			w.wrong("%s is %s, and was to be held by a policy at fault", nameOf(o), stateOf(live))
		}
	}
	return nil
}

func (w *wave) letGo(ctx context.Context) error {
	for _, o := range w.held {
		if err := w.api.unlabel(ctx, o, collectLabel); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until all is gone that has to go.
func (w *wave) settled(ctx context.Context) error {
	for _, o := range slices.Concat(w.goes, w.held) {
		w.gone(ctx, o)
	}
	for _, name := range w.sent {
		if !w.site.forget(name) {
			w.wrong("%s went, and the site was not asked to delete what it stands for", name)
		}
	}
	return ctx.Err()
}

// gone waits until an object is gone; else it is stuck.
func (w *wave) gone(ctx context.Context, o *unstructured.Unstructured) {
	err := eventually(ctx, func() error {
		live, err := w.api.live(ctx, o)
		if err == nil && live != nil {
			err = fmt.Errorf("it is %s", stateOf(live))
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.wrong("%s is stuck: after %s %v", nameOf(o), patience, err)
	}
}

// remains sees that what stays is there, with just the owners that it has to have.
func (w *wave) remains(ctx context.Context) error {
	for _, r := range w.stays {
		last := ""
		err := eventually(ctx, func() error {
			live, err := w.api.live(ctx, r.object)
			if err != nil {
				return err
			}
			last = stateOf(live)
			if live == nil || live.GetDeletionTimestamp() != nil {
				return nil // that is final
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
			w.wrong("%s is %s, and was to stay with the owners %v", nameOf(r.object), last, r.owners)
		}
		w.checked.Add(1)
	}
	return nil
}

// isFree waits until an object has no owners any more.
func (w *wave) isFree(ctx context.Context, o *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		live, err := w.api.live(ctx, o)
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

// end takes the type away, with what there is of it, and the namespace.
func (w *wave) end(ctx context.Context) error {
	d := definition(w.plural)
	if err := w.api.delete(ctx, d, ""); err != nil {
		return err
	}
	if err := w.api.gone(ctx, d); err != nil {
		w.wrong("type %s is stuck: %v", w.plural, err)
	}
	ns := namespace(w.name)
	if err := w.api.delete(ctx, ns, ""); err != nil {
		return err
	}
	if err := w.api.gone(ctx, ns); err != nil {
		w.wrong("namespace %s is stuck: %v", w.name, err)
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
		return fmt.Sprintf("being deleted, with finalizers %v and owners %v", o.GetFinalizers(), ownersOf(o))
	default:
		return fmt.Sprintf("there, with finalizers %v, owners %v and labels %v", o.GetFinalizers(), ownersOf(o), o.GetLabels())
	}
}

package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cases returns the cases of a wave: each creates some objects, and registers which of them to
// delete and the expected state of the others.
func (w *wave) cases() []func(context.Context) error {
	return []func(context.Context) error{
		w.inBackground, w.inForeground, w.orphaned, w.shared, w.orphanedByPolicy, w.keptByPolicy, w.delayedByPolicy, w.heldByFault,
		w.finalized, w.ofCustomType, w.leftByType,
	}
}

// createFamily creates an owner and its dependents, one of each kind.
func (w *wave) createFamily(ctx context.Context, owner schema.GroupVersionKind, labels map[string]string, kinds ...schema.GroupVersionKind) (o *unstructured.Unstructured, dependents []*unstructured.Unstructured, err error) {
	if o, err = w.create(ctx, owner, objectSpec{labels: labels}); err != nil {
		return nil, nil, err
	}
	for _, kind := range kinds {
		dependent, err := w.create(ctx, kind, objectSpec{owners: blockingRefs(o)})
		if err != nil {
			return nil, nil, err
		}
		dependents = append(dependents, dependent)
	}
	return o, dependents, nil
}

func (w *wave) addDelete(o *unstructured.Unstructured, how metav1.DeletionPropagation) {
	w.deletes = append(w.deletes, deletion{o, how})
	w.toDelete = append(w.toDelete, o)
}

func (w *wave) addRemaining(objects []*unstructured.Unstructured, owners ...string) {
	for _, o := range objects {
		w.stays = append(w.stays, remaining{o, owners})
	}
}

func (w *wave) inBackground(ctx context.Context) error {
	owner, dependents, err := w.createFamily(ctx, configMaps, nil, configMaps, secrets, w.custom)
	w.toDelete = append(w.toDelete, dependents...)
	w.addDelete(owner, metav1.DeletePropagationBackground)
	return err
}

// inForeground has three generations.
func (w *wave) inForeground(ctx context.Context) error {
	owner, children, err := w.createFamily(ctx, secrets, nil, configMaps, w.custom)
	if err != nil {
		return err
	}
	grandchild, err := w.create(ctx, secrets, objectSpec{owners: blockingRefs(children...)})
	w.toDelete = append(append(w.toDelete, children...), grandchild)
	w.addDelete(owner, metav1.DeletePropagationForeground)
	return err
}

func (w *wave) orphaned(ctx context.Context) error {
	owner, dependents, err := w.createFamily(ctx, configMaps, nil, configMaps, secrets)
	w.addRemaining(dependents)
	w.addDelete(owner, metav1.DeletePropagationOrphan)
	return err
}

// shared has two owners, one of which stays.
func (w *wave) shared(ctx context.Context) error {
	leaves, _, err := w.createFamily(ctx, configMaps, nil)
	if err != nil {
		return err
	}
	other, _, err := w.createFamily(ctx, secrets, nil)
	if err != nil {
		return err
	}
	both, err := w.create(ctx, configMaps, objectSpec{owners: blockingRefs(leaves, other)})
	if err != nil {
		return err
	}
	w.addRemaining([]*unstructured.Unstructured{both}, other.GetName())
	w.addDelete(leaves, metav1.DeletePropagationBackground)
	return nil
}

func (w *wave) orphanedByPolicy(ctx context.Context) error {
	owner, dependents, err := w.createFamily(ctx, configMaps, map[string]string{propagateLabel: "orphan"}, secrets, configMaps)
	w.addRemaining(dependents)
	w.addDelete(owner, metav1.DeletePropagationBackground)
	return err
}

func (w *wave) keptByPolicy(ctx context.Context) error {
	kept, err := w.createCollected(ctx, keep)
	w.addRemaining(kept)
	return err
}

func (w *wave) delayedByPolicy(ctx context.Context) error {
	delayed, err := w.createCollected(ctx, wait)
	w.toDelete = append(w.toDelete, delayed...)
	return err
}

// heldByFault is kept as long as its module fails.
func (w *wave) heldByFault(ctx context.Context) error {
	for _, mode := range []string{undefined, endless} {
		held, err := w.createCollected(ctx, mode)
		if err != nil {
			return err
		}
		w.held = append(w.held, held...)
	}
	return nil
}

// createCollected creates a family whose dependents are governed by the module.
func (w *wave) createCollected(ctx context.Context, mode string) ([]*unstructured.Unstructured, error) {
	owner, _, err := w.createFamily(ctx, configMaps, nil)
	if err != nil {
		return nil, err
	}
	dependent, err := w.create(ctx, secrets, objectSpec{owners: blockingRefs(owner), labels: map[string]string{collectLabel: mode}})
	w.addDelete(owner, metav1.DeletePropagationBackground)
	return []*unstructured.Unstructured{dependent}, err
}

// finalized is deleted once the site has received a request.
func (w *wave) finalized(ctx context.Context) error {
	owner, _, err := w.createFamily(ctx, secrets, nil)
	if err != nil {
		return err
	}
	o, err := w.create(ctx, configMaps, objectSpec{owners: blockingRefs(owner), labels: map[string]string{finalizeLabel: "yes"}})
	if err != nil {
		return err
	}
	w.toDelete, w.wantRequests = append(w.toDelete, o), append(w.wantRequests, o.GetName())
	w.addDelete(owner, metav1.DeletePropagationBackground)
	return nil
}

func (w *wave) ofCustomType(ctx context.Context) error {
	owner, dependents, err := w.createFamily(ctx, w.custom, nil, w.custom, configMaps)
	w.toDelete = append(w.toDelete, dependents...)
	w.addDelete(owner, metav1.DeletePropagationForeground)
	return err
}

// leftByType stays until its namespace is deleted: without the type, it is unknown what
// happened to the owner.
func (w *wave) leftByType(ctx context.Context) error {
	owner, dependents, err := w.createFamily(ctx, w.custom, nil, configMaps)
	if err != nil {
		return err
	}
	w.addRemaining([]*unstructured.Unstructured{owner})
	w.addRemaining(dependents, owner.GetName())
	return nil
}

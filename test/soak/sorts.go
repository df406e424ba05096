package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sorts are what a wave is made of: each makes some objects, and says what is deleted of
// them and what has to become of the rest.
func (w *wave) sorts() []func(context.Context) error {
	return []func(context.Context) error{
		w.inBackground, w.inForeground, w.orphaned, w.shared, w.orphanedByPolicy, w.keptByPolicy, w.delayedByPolicy, w.heldByFault,
		w.finalized, w.ofCustomType, w.leftByType,
	}
}

// family is an owner and its dependents, one of each kind that is given.
func (w *wave) family(ctx context.Context, owner schema.GroupVersionKind, labels map[string]string, kinds ...schema.GroupVersionKind) (o *unstructured.Unstructured, dependents []*unstructured.Unstructured, err error) {
	if o, err = w.make(ctx, owner, thing{labels: labels}); err != nil {
		return nil, nil, err
	}
	for _, kind := range kinds {
		dependent, err := w.make(ctx, kind, thing{owners: owns(o)})
		if err != nil {
			return nil, nil, err
		}
		dependents = append(dependents, dependent)
	}
	return o, dependents, nil
}

func (w *wave) willDelete(o *unstructured.Unstructured, how metav1.DeletionPropagation) {
	w.deletes = append(w.deletes, deletion{o, how})
	w.goes = append(w.goes, o)
}

func (w *wave) willStay(objects []*unstructured.Unstructured, owners ...string) {
	for _, o := range objects {
		w.stays = append(w.stays, remaining{o, owners})
	}
}

func (w *wave) inBackground(ctx context.Context) error {
	owner, dependents, err := w.family(ctx, configMaps, nil, configMaps, secrets, w.custom)
	w.goes = append(w.goes, dependents...)
	w.willDelete(owner, metav1.DeletePropagationBackground)
	return err
}

// inForeground has three generations.
func (w *wave) inForeground(ctx context.Context) error {
	owner, children, err := w.family(ctx, secrets, nil, configMaps, w.custom)
	if err != nil {
		return err
	}
	grandchild, err := w.make(ctx, secrets, thing{owners: owns(children...)})
	w.goes = append(append(w.goes, children...), grandchild)
	w.willDelete(owner, metav1.DeletePropagationForeground)
	return err
}

func (w *wave) orphaned(ctx context.Context) error {
	owner, dependents, err := w.family(ctx, configMaps, nil, configMaps, secrets)
	w.willStay(dependents)
	w.willDelete(owner, metav1.DeletePropagationOrphan)
	return err
}

// shared has two owners, one of which stays.
func (w *wave) shared(ctx context.Context) error {
	leaves, _, err := w.family(ctx, configMaps, nil)
	if err != nil {
		return err
	}
	other, _, err := w.family(ctx, secrets, nil)
	if err != nil {
		return err
	}
	both, err := w.make(ctx, configMaps, thing{owners: owns(leaves, other)})
	if err != nil {
		return err
	}
	w.willStay([]*unstructured.Unstructured{both}, other.GetName())
	w.willDelete(leaves, metav1.DeletePropagationBackground)
	return nil
}

func (w *wave) orphanedByPolicy(ctx context.Context) error {
	owner, dependents, err := w.family(ctx, configMaps, map[string]string{propagateLabel: "orphan"}, secrets, configMaps)
	w.willStay(dependents)
	w.willDelete(owner, metav1.DeletePropagationBackground)
	return err
}

func (w *wave) keptByPolicy(ctx context.Context) error {
	kept, err := w.collected(ctx, keep)
	w.willStay(kept)
	return err
}

func (w *wave) delayedByPolicy(ctx context.Context) error {
	delayed, err := w.collected(ctx, wait)
	w.goes = append(w.goes, delayed...)
	return err
}

// heldByFault is kept as long as the module is asked about it.
func (w *wave) heldByFault(ctx context.Context) error {
	for _, mode := range []string{undefined, endless} {
		held, err := w.collected(ctx, mode)
		if err != nil {
			return err
		}
		w.held = append(w.held, held...)
	}
	return nil
}

// collected makes a family about whose dependents the module is asked.
func (w *wave) collected(ctx context.Context, mode string) ([]*unstructured.Unstructured, error) {
	owner, _, err := w.family(ctx, configMaps, nil)
	if err != nil {
		return nil, err
	}
	dependent, err := w.make(ctx, secrets, thing{owners: owns(owner), labels: map[string]string{collectLabel: mode}})
	w.willDelete(owner, metav1.DeletePropagationBackground)
	return []*unstructured.Unstructured{dependent}, err
}

// finalized goes once the site has been told.
func (w *wave) finalized(ctx context.Context) error {
	owner, _, err := w.family(ctx, secrets, nil)
	if err != nil {
		return err
	}
	o, err := w.make(ctx, configMaps, thing{owners: owns(owner), labels: map[string]string{finalizeLabel: "yes"}})
	if err != nil {
		return err
	}
	w.goes, w.sent = append(w.goes, o), append(w.sent, o.GetName())
	w.willDelete(owner, metav1.DeletePropagationBackground)
	return nil
}

func (w *wave) ofCustomType(ctx context.Context) error {
	owner, dependents, err := w.family(ctx, w.custom, nil, w.custom, configMaps)
	w.goes = append(w.goes, dependents...)
	w.willDelete(owner, metav1.DeletePropagationForeground)
	return err
}

// leftByType stays until the type is gone, and its namespace: nobody can know then what
// became of the owner.
func (w *wave) leftByType(ctx context.Context) error {
	owner, dependents, err := w.family(ctx, w.custom, nil, configMaps)
	if err != nil {
		return err
	}
	w.willStay([]*unstructured.Unstructured{owner})
	w.willStay(dependents, owner.GetName())
	return nil
}

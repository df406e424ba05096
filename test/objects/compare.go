package objects

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/restore"
)

// UIDs returns the current UIDs of objects by their former ones.
func (e *Env) UIDs(former []*unstructured.Unstructured) map[types.UID]types.UID {
	e.Helper()
	current := map[types.UID]types.UID{}
	for _, o := range former {
		if live := e.Read(o); live != nil {
			current[o.GetUID()] = live.GetUID()
		}
	}
	return current
}

// Compare fails the test unless each former object exists again with all its fields except some, and
// with references to the current UIDs of its owners.
func (e *Env) Compare(former []*unstructured.Unstructured, without ...string) {
	e.Helper()
	current := e.UIDs(former)
	for _, o := range former {
		live := e.Read(o)
		if live == nil {
			e.Errorf("%s %s was not restored", o.GetKind(), o.GetName())
			continue
		}
		if live.GetUID() == o.GetUID() {
			e.Errorf("%s %s was not deleted at all", o.GetKind(), o.GetName())
		}
		if diff := Diff(o, live, current, without...); diff != "" {
			e.Errorf("%s %s (-archived +restored):\n%s", o.GetKind(), o.GetName(), diff)
		}
	}
}

// Diff compares an object with what it was before, except for what the API server sets and some other
// fields. Current has the current UIDs of its owners by their former ones.
func Diff(former, live *unstructured.Unstructured, current map[types.UID]types.UID, without ...string) string {
	return cmp.Diff(comparable(former, current, without...), comparable(live, nil, without...))
}

// comparable returns an object without what the server sets, and with the current UIDs of its owners.
func comparable(o *unstructured.Unstructured, current map[types.UID]types.UID, without ...string) map[string]any {
	o = o.DeepCopy()
	for _, field := range append([]string{
		"metadata.uid", "metadata.resourceVersion", "metadata.generation", "metadata.creationTimestamp", "metadata.managedFields", "metadata.selfLink", "status",
		"metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.finalizers",
	}, without...) {
		unstructured.RemoveNestedField(o.Object, strings.Split(field, ".")...)
	}
	annotations := o.GetAnnotations()
	delete(annotations, restore.FromAnnotation)
	o.SetAnnotations(annotations)
	if len(annotations) == 0 {
		o.SetAnnotations(nil)
	}
	refs := o.GetOwnerReferences()
	for i, ref := range refs {
		if uid, ok := current[ref.UID]; ok {
			refs[i].UID = uid
		}
	}
	slices.SortFunc(refs, func(a, b metav1.OwnerReference) int { return strings.Compare(a.Kind+" "+a.Name, b.Kind+" "+b.Name) })
	if o.SetOwnerReferences(refs); len(refs) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "ownerReferences")
	}
	return o.Object
}

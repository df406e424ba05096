package restore

import (
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/restore"
)

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
	if o.SetOwnerReferences(refs); len(refs) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "ownerReferences")
	}
	return o.Object
}

// compare fails the test unless each archived object exists again with all its fields, and with
// references to the current UIDs of its owners.
func (e *env) compare(archived []*unstructured.Unstructured, without ...string) {
	e.Helper()
	current := e.uids(archived)
	for _, o := range archived {
		live := e.read(o)
		if live == nil {
			e.Errorf("%s %s was not restored", o.GetKind(), o.GetName())
			continue
		}
		if live.GetUID() == o.GetUID() {
			e.Errorf("%s %s was not deleted at all", o.GetKind(), o.GetName())
		}
		if diff := cmp.Diff(comparable(o, current, without...), comparable(live, nil, without...)); diff != "" {
			e.Errorf("%s %s (-archived +restored):\n%s", o.GetKind(), o.GetName(), diff)
		}
	}
}

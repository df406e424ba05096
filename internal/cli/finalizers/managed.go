package finalizers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// addedBy returns the field manager that added a finalizer to an object, and when it last wrote.
// A manager that only updated an object with the finalizer does not own it.
func addedBy(managers []metav1.ManagedFieldsEntry, finalizer string) (by string, at *metav1.Time) {
	path := fieldpath.MakePathOrDie("metadata", "finalizers", value.NewValueInterface(finalizer))
	for _, m := range managers {
		if m.FieldsV1 == nil || m.Subresource == "status" {
			continue
		}
		var set fieldpath.Set
		if set.FromJSON(m.FieldsV1.GetRawReader()) != nil || !set.Has(path) {
			continue
		}
		if at == nil || m.Time != nil && m.Time.After(at.Time) {
			by, at = m.Manager, m.Time
		}
	}
	return by, at
}

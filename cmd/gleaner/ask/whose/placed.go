package whose

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// placed tells which field manager has put a finalizer on an object, and when it
// wrote last. A manager that has only written an object that had it does not own it.
func placed(managers []metav1.ManagedFieldsEntry, finalizer string) (by string, at *metav1.Time) {
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

// failedBy reads why the module of a finalizer has given up on an object, in what
// Gleaner has noted on it.
func failedBy(text, uid, finalizer string) string {
	var notes struct {
		UID string `json:"uid"`
		By  map[string]struct {
			Data struct {
				Failed string `json:"failed"`
			} `json:"data"`
		} `json:"by"`
	}
	if json.Unmarshal([]byte(text), &notes) != nil || notes.UID != uid {
		return ""
	}
	return notes.By[finalizer].Data.Failed
}

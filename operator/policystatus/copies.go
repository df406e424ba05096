package policystatus

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// statusCopy is a resource with the status that was written last.
type statusCopy struct {
	read, written client.Object
	version       string // resourceVersion of the last write; empty: none
}

// copyOf returns the resource with the status that was written last. The list that a snapshot was made of may have been read
// before that: then its status is older.
func (w *Writer) copyOf(read client.Object) client.Object {
	c, ok := w.copies[read.GetUID()]
	if ok && c.read == read {
		return c.written
	}
	made := statusCopy{read: read, written: read.DeepCopyObject().(client.Object)}
	if ok && isOlder(read, c.version) {
		if with, err := withStatus(read, c.written); err == nil {
			made.written, made.version = with, c.version
		}
	}
	w.copies[read.GetUID()] = made
	return made.written
}

// isOlder reports whether an object was read before a version of it was written.
func isOlder(read client.Object, version string) bool {
	if version == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(read.GetResourceVersion(), version)
	return err == nil && order < 0
}

// withStatus returns an object with the status of another one of the same type.
func withStatus(o, from client.Object) (client.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("convert status: %w", err)
	}
	other, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return nil, fmt.Errorf("convert status: %w", err)
	}
	content["status"] = other["status"]
	made := o.DeepCopyObject().(client.Object)
	return made, runtime.DefaultUnstructuredConverter.FromUnstructured(content, made)
}

func (w *Writer) forgetCopies(s *policyset.Snapshot) {
	exists := map[types.UID]bool{}
	for _, m := range s.Modules {
		exists[m.Object.GetUID()] = true
	}
	for _, p := range s.Policies {
		exists[p.Object.GetUID()] = true
	}
	for _, f := range s.Finalizers {
		exists[f.Object.GetUID()] = true
	}
	for _, a := range s.Archives {
		exists[a.Object.GetUID()] = true
	}
	for _, r := range s.Retentions {
		exists[r.Object.GetUID()] = true
	}
	for uid := range w.copies {
		if !exists[uid] {
			delete(w.copies, uid)
		}
	}
}

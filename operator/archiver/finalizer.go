package archiver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// Archive implements policyset.Archiver: it stores an object that is being deleted, for the
// finalizer of a policy.
func (a *Archiver) Archive(ctx context.Context, p *policyset.Archive, object *unstructured.Unstructured) (done string, err error) {
	by := []*policyset.Archive{p}
	cause, known := a.lineage.cause(object.GetUID())
	if !known {
		cause = archive.Cause{By: archive.ByOther, Root: object.GetUID()}
		a.lineage.put(object.GetUID(), cause)
	}
	err = a.put(ctx, object, by, cause)
	switch {
	case err == nil:
		return "it was archived", nil
	case p.Continue:
		a.fail(archive.ReferenceOf(object), by, err)
		return fmt.Sprintf("it was not archived (onFailure: Continue): %s", err), nil
	default:
		a.fail(archive.ReferenceOf(object), by, err)
		return "", fmt.Errorf("archive: %w", err)
	}
}

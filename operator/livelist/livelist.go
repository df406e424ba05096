// Package livelist lists Gleaner's custom resources from the API server. A type that is not installed has none.
package livelist

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// Absent reports whether a kind is proven not to be served, by asking the API server now.
type Absent func(context.Context, schema.GroupKind) (bool, error)

// Unserved is an Absent for commands that only show objects: it treats a kind that the API server does not find as
// not served, without proof.
func Unserved(context.Context, schema.GroupKind) (bool, error) { return true, nil }

// List lists the objects of one of Gleaner's kinds, and reports whether the kind is served. It calls absent only
// if the list is not found, since the proof takes several requests. After an error, which names the kind, nothing is
// known about the objects.
func List(ctx context.Context, from client.Reader, absent Absent, kind string, into client.ObjectList) (served bool, err error) {
	err = from.List(ctx, into)
	switch {
	case err == nil:
		_, err = meta.ExtractList(into)
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		is, failed := absent(ctx, schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: kind})
		if is && failed == nil {
			return false, nil
		}
		err = cmp.Or(failed, err)
	}
	if err != nil {
		return false, fmt.Errorf("list %s: %w", kind, err)
	}
	return true, nil
}

// Package livelist lists custom resources of Gleaner whose types may not be installed.
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

// Unserved is for those who only show what they list: a kind that the API server does not find is not served.
func Unserved(context.Context, schema.GroupKind) (bool, error) { return true, nil }

// List lists the objects of a kind of Gleaner's, and reports whether the kind is served. One that
// is proven not to be served has none: that is only asked if the list can't be read, since
// the proof takes several requests. The error names the kind; then nothing is known about it.
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

package input

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/crds/admit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
)

// LoadResources reads objects from files. Gleaner's resources are validated and defaulted as
// if they were applied.
func LoadResources(ctx context.Context, files []string) ([]*unstructured.Unstructured, error) {
	objects, err := kubectl.Load(files)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if err := admit.Admit(ctx, o); err != nil {
			return nil, fmt.Errorf("in %s: %s %s: %s", strings.Join(files, ", "), o.GetKind(), o.GetName(), err.Error()) // not %w: the error does not come from a server
		}
	}
	return objects, nil
}

package policystatus

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// misordered returns what is wrong with the order of a fixed verdict, as far as discovery has seen: a
// kind that is not served keeps every object that is deleted. It is "" if nothing is.
func (w *Writer) misordered(p *policyset.Policy) string {
	if p.Spec.Fixed == nil || p.Spec.Fixed.Propagate == nil {
		return ""
	}
	var missing []string
	for _, wave := range p.Spec.Fixed.Propagate.Order {
		for _, k := range wave {
			if kind := (schema.GroupKind{Group: k.Group, Kind: k.Kind}); !w.options.ServesKind(kind) {
				missing = append(missing, kind.String())
			}
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("its order has kinds that this API server doesn't serve, so that what it governs is kept when it is deleted: %s. "+
		"Write kind and group as kubectl api-resources shows them, or remove the kind", strings.Join(missing, ", "))
}

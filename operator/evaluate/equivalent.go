package evaluate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// checkEquivalent returns an error, which keeps the object, if the object is also served as a second
// resource that a policy governs (defect 3.30). Policies are evaluated only for the first
// resource, which is the one that happened to be seen first.
func (c *Evaluator) checkEquivalent(ctx context.Context, set *policies.Set, hook hostabi.Hook, o graph.Object, own schema.GroupResource) error {
	if c.EquivalentKinds == nil {
		return nil
	}
	for _, kinds := range c.EquivalentKinds() {
		other, is := otherKind(kinds, o.Kind.GroupKind())
		if !is {
			continue
		}
		r, served := c.Catalog().Preferred(other)
		if !served || !governsOnly(set, hook, r.Version.GroupResource(), own, o.Namespace) {
			continue
		}
		shown, err := c.Reader.Get(ctx, policies.ServiceAccount{}, r.Version, o.Namespace, o.Name)
		switch {
		case err != nil && catalog.ConfirmsNotFound(err, r.Version.GroupResource(), o.Name):
			continue
		case err != nil:
			return fmt.Errorf("check whether it is also served as %s: %w", r.Version.GroupResource(), err)
		case shown.GetUID() == o.UID:
			return fmt.Errorf("it is also served as %s, which a policy governs: select both resources in the policy, or add one of them to --ignore-resources",
				r.Version.GroupResource())
		}
	}
	return nil
}

func otherKind(kinds graph.EquivalentKinds, kind schema.GroupKind) (schema.GroupKind, bool) {
	switch kind {
	case kinds.First:
		return kinds.Second, true
	case kinds.Second:
		return kinds.First, true
	default:
		return schema.GroupKind{}, false
	}
}

// governsOnly reports whether a policy in Enforce mode selects one resource but not
// another.
func governsOnly(set *policies.Set, hook hostabi.Hook, one, another schema.GroupResource, namespace string) bool {
	for p := range set.Candidates(hook, one, namespace) {
		if p.Enforce && !p.Selects(another) {
			return true
		}
	}
	return false
}

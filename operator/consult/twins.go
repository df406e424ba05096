package consult

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// asTwin says why an object is kept that is shown under a second type, where a policy on
// that one might have a say (defect 3.30). It is judged by the first one alone, which is
// the one that happened to be seen first.
func (c *Consultant) asTwin(ctx context.Context, set *policies.Set, hook hostabi.Hook, o graph.Object, own schema.GroupResource) error {
	if c.Twins == nil {
		return nil
	}
	for _, pair := range c.Twins() {
		other, is := otherOf(pair, o.Kind.GroupKind())
		if !is {
			continue
		}
		r, served := c.Catalog().Preferred(other)
		if !served || !governsOnly(set, hook, r.Version.GroupResource(), own, o.Namespace) {
			continue
		}
		shown, err := c.Reader.Get(ctx, policies.Account{}, r.Version, o.Namespace, o.Name)
		switch {
		case err != nil && catalog.Denies(err, r.Version.GroupResource(), o.Name):
			continue
		case err != nil:
			return fmt.Errorf("whether it is shown as %s, too, is not known: %w", r.Version.GroupResource(), err)
		case shown.GetUID() == o.UID:
			return fmt.Errorf("it is shown as %s, too, which a policy governs: have the policy name both, or name one of them in --ignore-resources",
				r.Version.GroupResource())
		}
	}
	return nil
}

func otherOf(pair graph.Twins, kind schema.GroupKind) (schema.GroupKind, bool) {
	switch kind {
	case pair.First:
		return pair.Second, true
	case pair.Second:
		return pair.First, true
	default:
		return schema.GroupKind{}, false
	}
}

// governsOnly reports whether a policy is enforced on one resource, and not on another.
func governsOnly(set *policies.Set, hook hostabi.Hook, one, another schema.GroupResource, namespace string) bool {
	for p := range set.For(hook, one, namespace) {
		if p.Enforce && !p.Selects(another) {
			return true
		}
	}
	return false
}

package consult

import (
	"context"
	"fmt"
)

// Rule is how policies govern an object.
type Rule uint8

// The ways to be governed.
const (
	Nobody   Rule = iota
	Watched       // by policies that change nothing
	Enforced      // by one at least that has its word carried out
)

// Governs reports whether policies would be asked about an object, without asking
// them. An error is one of reading, after which it may be known later.
func (c *Consultant) Governs(ctx context.Context, q Question) (Rule, error) {
	o, rule := q.Facts.Object, Nobody
	r, served := c.Catalog().Preferred(o.Kind.GroupKind())
	if !served {
		return rule, fmt.Errorf("%s is not served", o.Kind.GroupKind())
	}
	s := &subject{Consultant: c, question: q, resource: r.Version.GroupResource()}
	for p := range c.Policies().For(q.Hook, s.resource, o.Namespace) {
		governs, err := s.governs(ctx, p)
		switch {
		case err != nil && p.Enforce:
			return Enforced, err
		case governs && p.Enforce:
			return Enforced, nil
		case governs:
			rule = Watched
		}
	}
	return rule, nil
}

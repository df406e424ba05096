package evaluate

import (
	"context"
	"fmt"
)

// Governance is whether and in which mode policies govern an object.
type Governance uint8

// The values of Rule.
const (
	NotGoverned       Governance = iota
	GovernedInMonitor            // only by policies in Monitor mode
	GovernedInEnforce            // by at least one policy in Enforce mode
)

// Governs reports whether policies govern an object, without evaluating them. An error
// means that a read failed and may succeed later.
func (c *Evaluator) Governs(ctx context.Context, q Input) (Governance, error) {
	o, rule := q.Facts.Object, NotGoverned
	r, served := c.Catalog().Preferred(o.Kind.GroupKind())
	if !served {
		return rule, fmt.Errorf("%s is not served", o.Kind.GroupKind())
	}
	s := &session{Evaluator: c, input: q, resource: r.Version.GroupResource()}
	for p := range c.Policies().Candidates(q.Hook, s.resource, o.Namespace) {
		governs, err := s.governs(ctx, p)
		switch {
		case err != nil && p.Enforce:
			return GovernedInEnforce, err
		case governs && p.Enforce:
			return GovernedInEnforce, nil
		case governs:
			rule = GovernedInMonitor
		}
	}
	return rule, nil
}

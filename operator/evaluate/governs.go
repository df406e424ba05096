package evaluate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/selectors"
	"github.com/gleaner-dev/gleaner/policies"
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

// selected returns what the watch has shown of the policies' object selectors.
func (c *Evaluator) selected(o graph.Object, resource schema.GroupResource) selectors.Results {
	if c.Selectors == nil {
		return selectors.Results{}
	}
	return c.Selectors().Scope(resource, o.Namespace).Results(o.Selection)
}

// governs reports whether the policy's selectors and matchConditions match the object. An
// error is a fault of the policy.
func (s *session) governs(ctx context.Context, p *policies.Policy) (bool, error) {
	if p.NamespaceSelector != nil && !p.NamespaceSelector.Empty() {
		namespace, err := s.Reader.Namespace(ctx, s.input.Facts.Object.Namespace)
		if err != nil {
			return false, fmt.Errorf("evaluate namespaceSelector: %w", hostError{err})
		}
		if !p.NamespaceSelector.Matches(namespace.Labels) {
			return false, nil
		}
	}
	if !p.NeedsObjectToMatch() {
		return true, nil
	}
	if selected, err := s.selects(ctx, p); err != nil || !selected || p.Matches == nil {
		return selected, err
	}
	seen, err := s.readFor(ctx, p, "evaluate matchConditions")
	if err != nil {
		return false, err
	}
	return p.Matches(ctx, seen.Object)
}

// selects reports whether the policy's object selector matches the object. The object is read if
// the watch hasn't shown that.
func (s *session) selects(ctx context.Context, p *policies.Policy) (bool, error) {
	if p.ObjectSelector == nil || p.ObjectSelector.Empty() {
		return true, nil
	}
	if selects, known := s.selected.Selects(p); known {
		return selects, nil
	}
	object, err := s.read(ctx)
	if err != nil {
		return false, fmt.Errorf("evaluate selectors: %w", hostError{err})
	}
	return p.ObjectSelector.Matches(labelsOf(object)), nil
}

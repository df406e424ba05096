// Package protect has the API server deny users' requests to delete objects that policies protect.
//
// Policies with fixed verdicts become ValidatingAdmissionPolicies, which the API server evaluates itself.
// Policies with modules, and those that a module may precede, become webhooks. Each has selectors of its own, so
// that nothing else depends on them.
//
// Plan is a function of the policies. An Installer writes what it returns, while this replica leads, and
// publishes what it has installed. A Reviewer answers the webhooks.
package protect

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/policies"
)

// namePrefix begins the names of admission policies.
const namePrefix = "gleaner-protect-"

// Name returns the name of the admission policy for a policy, or of its webhook configuration.
func Name(p *policyset.Policy) string {
	const maxName = 253
	if name := namePrefix + p.Key.Name; len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(p.Key.Name))
	return namePrefix + "." + hex.EncodeToString(sum[:]) // no policy has such a name
}

// Protects reports whether a policy may deny requests.
func Protects(p *policyset.Policy) bool {
	if !p.Policy.HasHook(hostabi.HookProtect) {
		return false
	}
	return p.Spec.Fixed == nil || p.Spec.Fixed.Protect != nil && p.Spec.Fixed.Protect.Decision == v1alpha1.ProtectDeny
}

// Plan is how policies are installed.
type Plan struct {
	Policies []*policyset.Policy // as ValidatingAdmissionPolicies
	Webhooks []*policyset.Policy

	// Retained are policies of which it is not known what they protect, by name: their module is loading, or something is
	// wrong with them. What is installed for them stays as it is.
	Retained map[string]*policyset.Policy

	allowing []*policyset.Policy // with the fixed verdict Allow, in Enforce mode
}

// PlanOf returns how the policies of a snapshot are installed.
func PlanOf(s *policyset.Snapshot) Plan {
	plan := Plan{Retained: map[string]*policyset.Policy{}}
	var fixed, modules []*policyset.Policy
	for _, p := range s.Policies {
		switch {
		case p.Key.Namespace != "":
		case allows(p):
			plan.allowing = append(plan.allowing, p)
		case isUnknown(p):
			plan.Retained[Name(p)] = p
		case !Protects(p):
		case p.Spec.Fixed == nil:
			modules = append(modules, p)
		default:
			fixed = append(fixed, p)
		}
	}
	plan.Webhooks = modules
	for _, p := range fixed {
		if p.Policy.Enforce && slices.ContainsFunc(modules, func(m *policyset.Policy) bool { return m.Policy.Enforce && mayPrecede(m.Policy, p.Policy) }) {
			plan.Webhooks = append(plan.Webhooks, p)
		} else {
			plan.Policies = append(plan.Policies, p)
		}
	}
	return plan
}

// isUnknown reports whether it is not known whether a policy protects objects, or which. If a module has to answer protect,
// that is known before it is ready, and until then everything is denied.
func isUnknown(p *policyset.Policy) bool {
	switch {
	case p.Problem.IsZero():
		return false
	case p.Spec.Fixed != nil:
		return p.Spec.Fixed.Protect != nil
	default:
		return p.InvalidSelection || !p.Policy.HasHook(hostabi.HookProtect) && p.Policy.HooksUnknown
	}
}

// allows reports whether a policy exempts objects from the policies that it precedes.
func allows(p *policyset.Policy) bool {
	f := p.Spec.Fixed
	return f != nil && f.Protect != nil && f.Protect.Decision == v1alpha1.ProtectAllow && p.Policy.Enforce && p.Problem.IsZero()
}

// mayPrecede reports whether a policy may be evaluated before another one about some object.
func mayPrecede(p, other *policies.Policy) bool {
	return len(precedence(p, other)) != 0 && p.MayOverlap(other) && rulesOverlap(p.Rules, other.Rules)
}

// rulesOverlap reports whether two lists of rules may select the same resource.
func rulesOverlap(a, b []policies.Rule) bool {
	return slices.ContainsFunc(a, func(x policies.Rule) bool {
		return slices.ContainsFunc(b, func(y policies.Rule) bool {
			return intersect(x.Groups, y.Groups) && intersect(x.Resources, y.Resources)
		})
	})
}

func intersect(a, b []string) bool {
	return slices.Contains(a, policies.Wildcard) || slices.Contains(b, policies.Wildcard) ||
		slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// names is how two policies select a resource: by name or not.
type names struct{ first, second bool }

// precedence returns for which ways of selecting a resource a policy precedes another one.
func precedence(p, other *policies.Policy) (all []names) {
	for _, n := range []names{{true, true}, {true, false}, {false, true}, {false, false}} {
		if p.Precedes(n.first, other, n.second) {
			all = append(all, n)
		}
	}
	return all
}

// Versions returns the version of a resource in which policies see its objects; "" if it is not served.
type Versions func(schema.GroupResource) string

// of returns the versions of the resources that policies name, as a text.
func (v Versions) of(all ...*policyset.Policy) string {
	found := map[string]string{}
	for _, p := range all {
		for _, rule := range p.Policy.Rules {
			for _, r := range rule.NamedResources() {
				found[r.String()] = v(r)
			}
		}
	}
	return fmt.Sprint(found)
}

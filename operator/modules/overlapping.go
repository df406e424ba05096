package modules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// overlapping says whose word counts before the policy's where several govern the same.
func overlapping(b *build, p *policyState, set func(string, bool, string, string)) {
	var texts []string
	for _, o := range b.set.Overlaps(p.policy) {
		var names []string
		for _, first := range o.Before {
			if !first.InEffect() || !first.Shares(p.policy) {
				continue
			}
			if first.Loading && meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionOverlapping) != nil {
				return // what it answers is not known yet: that may be what was said before
			}
			names = append(names, first.String())
		}
		if len(names) == 0 {
			continue
		}
		resource := o.Resource
		if resource == "*" {
			resource = "all others"
		}
		texts = append(texts, fmt.Sprintf("%s of %s: %s", o.Hook, resource, strings.Join(names, ", ")))
	}
	if len(texts) == 0 {
		set(v1alpha1.ConditionOverlapping, false, "First", "no other policy takes precedence over it")
		return
	}
	slices.Sort(texts)
	set(v1alpha1.ConditionOverlapping, true, "OthersFirst", "others take precedence over it, unless they abstain: "+strings.Join(texts, "; "))
}

// reasonNotServed and reasonNotNamespaced are why a policy or finalizer governs nothing of
// what it names.
const reasonNotServed, reasonNotNamespaced = "NotServed", "NotNamespaced"

// notGoverned is that a policy or finalizer names resources of which it governs nothing, as far
// as discovery has seen.
func (k *Keeper) notGoverned(p *asking) problem {
	missing, elsewhere := k.unserved(p)
	switch {
	case len(missing) != 0:
		return problem{v1alpha1.ConditionEnforcing, reasonNotServed, fmt.Sprintf("this API server serves no %s: write resources in the "+
			"plural and with their group, as kubectl api-resources shows them, unless the type is still to come", strings.Join(missing, " and no "))}
	case len(elsewhere) != 0:
		return problem{v1alpha1.ConditionEnforcing, reasonNotNamespaced, fmt.Sprintf("it is for its own namespace alone, and %s are in none: "+
			"write a Cluster%s for them", strings.Join(elsewhere, " and "), p.kind)}
	default:
		return problem{}
	}
}

// unserved are the resources that the policy names and nobody serves, and those whose
// objects are not in namespaces, if it is for one.
func (k *Keeper) unserved(p *asking) (missing, elsewhere []string) {
	for _, rule := range p.policy.Rules {
		for _, r := range rule.Names() {
			switch served, namespaced := k.options.Serves(r); {
			case !served:
				missing = append(missing, r.String())
			case p.key.Namespace != "" && !namespaced:
				elsewhere = append(elsewhere, r.String())
			}
		}
	}
	slices.Sort(missing)
	slices.Sort(elsewhere)
	return slices.Compact(missing), slices.Compact(elsewhere)
}

package protect

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/policies"
)

// Variables of admission policies.
const (
	objectLabels    = "labels"
	namespaceLabels = "namespaceLabels"
)

// variables are their expressions. A cluster-scoped object has no namespace, which has no labels.
var variables = map[string]string{
	objectLabels:    "oldObject.metadata.?labels.orValue({})",
	namespaceLabels: "namespaceObject == null ? {} : namespaceObject.metadata.?labels.orValue({})",
}

// systemUsers are the users of system components that are no service accounts.
var systemUsers = []string{"system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"}

// byUser is true for requests that policies protect from: those of users, and not of system components, such as the garbage
// collector of kube-controller-manager and its namespace controller, of kubelets, and of others that are given.
func byUser(others ...string) string {
	const user = "request.userInfo.username"
	exempt := append(slices.Clone(systemUsers), others...)
	exempt = slices.DeleteFunc(exempt, func(s string) bool { return s == "" })
	return "!(" + user + " in " + list(exempt) + ") && !" + user + ".startsWith('system:serviceaccount:kube-system:') && " +
		"!(has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups)"
}

// notDeleting is true for objects that are not being deleted yet.
const notDeleting = "!has(oldObject.metadata.deletionTimestamp)"

// meets is true for objects that meet all match conditions; "" if there are none. Their variable is object, which
// is null in a DELETE.
func meets(conditions []v1alpha1.MatchCondition) string {
	all := make([]string, 0, len(conditions))
	for _, c := range conditions {
		all = append(all, "(("+c.Expression+"\n) == true)")
	}
	if len(all) == 0 {
		return ""
	}
	return "[oldObject].all(object, " + strings.Join(all, " && ") + ")"
}

// exemption is true for objects about which a policy is evaluated before another one; "" if there are none.
func exemption(by, from *policyset.Policy) string {
	if !mayPrecede(by.Policy, from.Policy) {
		return ""
	}
	parts := []string{
		inOrder(by.Policy, from.Policy), matches("variables."+namespaceLabels, by.NamespaceSelector),
		matches("variables."+objectLabels, by.ObjectSelector), meets(by.MatchConditions),
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, " && ")
}

// inOrder is true for the resources for which a policy that selects them precedes another one.
func inOrder(p, other *policies.Policy) string {
	ways := precedence(p, other)
	const all = 4
	if len(ways) == all {
		return selects(p)
	}
	alternatives := make([]string, 0, len(ways))
	for _, w := range ways {
		alternatives = append(alternatives, selectsBy(p, w.first)+" && "+selectsBy(other, w.second))
	}
	return "(" + strings.Join(alternatives, " || ") + ")"
}

// selects is true for the resources that a policy selects.
func selects(p *policies.Policy) string {
	return anyRule(p.Rules, func(r policies.Rule) []string {
		var parts []string
		if !slices.Contains(r.Groups, policies.Wildcard) {
			parts = append(parts, "request.resource.group in "+list(r.Groups))
		}
		if !slices.Contains(r.Resources, policies.Wildcard) {
			parts = append(parts, "request.resource.resource in "+list(r.Resources))
		}
		return append(parts, "true")
	})
}

// selectsBy is true for the resources that a policy selects by name, or otherwise.
func selectsBy(p *policies.Policy, name bool) string {
	byName := anyRule(p.Rules, func(r policies.Rule) []string {
		groups := slices.DeleteFunc(slices.Clone(r.Groups), isWildcard)
		resources := slices.DeleteFunc(slices.Clone(r.Resources), isWildcard)
		return []string{"request.resource.group in " + list(groups), "request.resource.resource in " + list(resources)}
	})
	if name {
		return byName
	}
	return "(" + selects(p) + " && !" + byName + ")"
}

func isWildcard(s string) bool { return s == policies.Wildcard }

// anyRule is true if the parts for a rule are.
func anyRule(rules []policies.Rule, parts func(policies.Rule) []string) string {
	alternatives := make([]string, 0, len(rules))
	for _, r := range rules {
		alternatives = append(alternatives, strings.Join(parts(r), " && "))
	}
	return "(" + strings.Join(alternatives, " || ") + ")"
}

// matches is true for labels that a selector matches; "" if it matches all.
func matches(labels string, s *metav1.LabelSelector) string {
	if s == nil {
		return ""
	}
	var all []string
	for _, key := range sortedKeys(s.MatchLabels) {
		all = append(all, hasValue(labels, key, []string{s.MatchLabels[key]}))
	}
	for _, r := range s.MatchExpressions {
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			all = append(all, hasValue(labels, r.Key, r.Values))
		case metav1.LabelSelectorOpNotIn:
			all = append(all, "!"+hasValue(labels, r.Key, r.Values))
		case metav1.LabelSelectorOpExists:
			all = append(all, "("+strconv.Quote(r.Key)+" in "+labels+")")
		case metav1.LabelSelectorOpDoesNotExist:
			all = append(all, "!("+strconv.Quote(r.Key)+" in "+labels+")")
		default:
			all = append(all, "false") // it exempts nothing
		}
	}
	return strings.Join(all, " && ")
}

func hasValue(labels, key string, values []string) string {
	key = strconv.Quote(key)
	return "(" + key + " in " + labels + " && " + labels + "[" + key + "] in " + list(values) + ")"
}

// list is a list of strings.
func list(all []string) string {
	quoted := make([]string, 0, len(all))
	for _, s := range all {
		quoted = append(quoted, strconv.Quote(s))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

package companion

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// ConfigurationName is the name of the ValidatingWebhookConfiguration.
const ConfigurationName = "gleaner-veto"

// VetoPath is the path of the webhook that may reject deletes, followed by the fingerprint
// of the snapshot that it was installed for: a replica that does not cover that has to
// reject, since it may not have read the policies yet that the webhook is called for.
const VetoPath = "/veto"

const (
	webhookSuffix = ".veto.gleaner.dev"

	dependsOnGoverned = "gleaner.dev/depends-on-governed"

	// collectorCondition is the name of the condition that matches deletes by the collector.
	collectorCondition = "gleaner.dev/by-the-collector"

	// webhookTimeout in seconds is longer than an answer takes.
	webhookTimeout = 3

	// maxVetoes bounds the webhooks that differ in what they select. Beyond it there is one
	// for all.
	maxVetoes = 50

	// maxRulesSize and maxSelectorSize bound, in bytes, what a webhook selects by. Beyond
	// them it selects more: one policy must not make the configuration too large for the API
	// server, which would then enforce no policy any more.
	maxRulesSize, maxSelectorSize = 4 << 10, 2 << 10
)

// installVetoes has the API server call the webhook about deletes by the built-in collector
// of what policies govern, and about nothing else.
func (c *Companion) installVetoes(ctx context.Context, s *policyset.Snapshot) (installed bool, err error) {
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName}}
	webhooks := c.vetoes(s)
	if len(webhooks) == 0 {
		return false, c.options.Objects.Remove(ctx, configuration)
	}
	gleaner, err := c.options.Objects.User(ctx)
	if err != nil {
		return false, err
	}
	canary, ok := c.canaryWebhook(gleaner)
	if !ok {
		return false, admission.ErrNoCertificate
	}
	err = c.options.Objects.Ensure(ctx, configuration, func() {
		c.annotate(configuration)
		configuration.Webhooks = append(webhooks, canary)
	})
	return err == nil, err
}

// vetoes returns the webhooks that a snapshot requires: one for each way to select objects.
func (c *Companion) vetoes(s *policyset.Snapshot) []admissionv1.ValidatingWebhook {
	found := map[string]*admissionv1.ValidatingWebhook{}
	for _, p := range s.Policies {
		if !p.Policy.HasHook(hostabi.HookCollect) {
			continue
		}
		objects := cmp.Or(boundedSelector(p.ObjectSelector), &metav1.LabelSelector{}).DeepCopy()
		merge(found, c.webhook(s, p, boundedSelector(p.NamespaceSelector), objects), governedRules(p))
	}
	for _, p := range s.Policies {
		if mayOverride(p) {
			w := c.webhook(s, p, dependentsNamespaces(p), &metav1.LabelSelector{})
			w.MatchConditions = append(w.MatchConditions, c.dependsOn(p))
			merge(found, w, []admissionv1.RuleWithOperations{deleteRule([]string{"*"}, []string{"*"}, scopeOf(p))})
		}
	}
	if len(found) > maxVetoes {
		found = inOne(found)
	}
	list := make([]admissionv1.ValidatingWebhook, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		w := found[name]
		w.Name = name + webhookSuffix
		slices.SortFunc(w.Rules, func(a, b admissionv1.RuleWithOperations) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		w.Rules = boundedRules(slices.CompactFunc(w.Rules, func(a, b admissionv1.RuleWithOperations) bool { return fmt.Sprint(a) == fmt.Sprint(b) }))
		list = append(list, *w)
	}
	return list
}

// webhook returns a webhook for what a policy selects, without rules. Fields that the API
// server would default are set, so that nothing differs when nothing has changed.
func (c *Companion) webhook(s *policyset.Snapshot, p *policyset.Policy, namespaces *metav1.LabelSelector, objects *metav1.LabelSelector) *admissionv1.ValidatingWebhook {
	failure := admissionv1.Fail
	if !p.Policy.Enforce || p.Spec.OnFault == v1alpha1.OnFaultDefault && !p.HostError { // a host error keeps the object
		failure = admissionv1.Ignore
	}
	user := c.CollectorUser()
	conditions := []admissionv1.MatchCondition{
		{Name: collectorCondition, Expression: fmt.Sprintf("request.userInfo.username == %q", user)},
	}
	if !strings.HasSuffix(user, collectorAccount) {
		conditions = append(conditions, admissionv1.MatchCondition{Name: "gleaner.dev/as-the-collector-does", Expression: collects})
	}
	config, _ := c.options.Endpoint.At(VetoPath + "/" + s.Fingerprint) // installVetoes checks for a certificate
	return &admissionv1.ValidatingWebhook{
		ClientConfig: config, FailurePolicy: &failure, MatchPolicy: ptr.To(admissionv1.Equivalent),
		SideEffects: ptr.To(admissionv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: ptr.To[int32](webhookTimeout),
		AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector:       c.within(p, namespaces), ObjectSelector: objects,
		MatchConditions: conditions,
	}
}

const (
	// collectorAccount ends the name of a user that is the collector and no other controller.
	collectorAccount = ":generic-garbage-collector"

	// collects matches the collector's deletes, and not most others by the same user, such
	// as those of the namespace controller.
	collects = "has(request.options.propagationPolicy) && has(request.options.preconditions) && has(request.options.preconditions.uid) && " +
		"has(oldObject.metadata.ownerReferences)"
)

// merge adds a webhook, or its rules to one that selects the same.
func merge(found map[string]*admissionv1.ValidatingWebhook, w *admissionv1.ValidatingWebhook, rules []admissionv1.RuleWithOperations) {
	key, err := json.Marshal([]any{w.NamespaceSelector, w.ObjectSelector, w.MatchConditions})
	if err != nil {
		panic(err) // they are plain data
	}
	sum := sha256.Sum256(key)
	name := "s" + hex.EncodeToString(sum[:6])
	if same, ok := found[name]; ok {
		if *w.FailurePolicy == admissionv1.Fail {
			same.FailurePolicy = w.FailurePolicy // a failure is ignored only if all policies say so
		}
		w = same
	}
	w.Rules = append(w.Rules, rules...)
	found[name] = w
}

// inOne merges webhooks into one that selects at least what each of them does.
func inOne(found map[string]*admissionv1.ValidatingWebhook) map[string]*admissionv1.ValidatingWebhook {
	var all *admissionv1.ValidatingWebhook
	for _, w := range found {
		if all == nil {
			all = w.DeepCopy()
			all.Rules, all.ObjectSelector, all.MatchConditions = nil, &metav1.LabelSelector{}, userConditions(w.MatchConditions)
			all.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: exemptions(w.NamespaceSelector)}
		}
		if *w.FailurePolicy == admissionv1.Fail {
			all.FailurePolicy = w.FailurePolicy
		}
		all.Rules = append(all.Rules, w.Rules...)
	}
	return map[string]*admissionv1.ValidatingWebhook{"all": all}
}

// userConditions returns the conditions that are about the user who deletes.
func userConditions(conditions []admissionv1.MatchCondition) []admissionv1.MatchCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c admissionv1.MatchCondition) bool { return c.Name == dependsOnGoverned })
}

// exemptions returns the part of a selector that exempts namespaces by name; see within.
func exemptions(s *metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	return s.MatchExpressions[len(s.MatchExpressions)-1:]
}

// within restricts a namespace selector to those that a policy may govern. The exempt ones
// come last.
func (c *Companion) within(p *policyset.Policy, namespaces *metav1.LabelSelector) *metav1.LabelSelector {
	s := cmp.Or(namespaces, &metav1.LabelSelector{}).DeepCopy()
	if p.Key.Namespace != "" {
		s.MatchExpressions = append(s.MatchExpressions, inNamespace(p.Key.Namespace))
	}
	s.MatchExpressions = append(s.MatchExpressions, c.options.Objects.ExemptNamespaces())
	return s
}

// dependentsNamespaces selects the namespaces in which dependents of what a policy governs
// may be: all, if it governs cluster-scoped objects.
func dependentsNamespaces(p *policyset.Policy) *metav1.LabelSelector {
	if s := p.Policy.NamespaceSelector; s != nil && s.Matches(labels.Set{}) {
		return nil
	}
	return boundedSelector(p.NamespaceSelector)
}

// boundedSelector returns a selector, or nil, which selects everything, if it is too large.
func boundedSelector(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s != nil && size(s) > maxSelectorSize {
		return nil
	}
	return s
}

// boundedRules returns rules, or one that selects everything, if they are too large.
func boundedRules(rules []admissionv1.RuleWithOperations) []admissionv1.RuleWithOperations {
	if size(rules) <= maxRulesSize {
		return rules
	}
	scope := admissionv1.NamespacedScope
	for _, r := range rules {
		if *r.Scope != scope {
			scope = admissionv1.AllScopes
		}
	}
	return []admissionv1.RuleWithOperations{deleteRule([]string{"*"}, []string{"*"}, scope)}
}

// size returns the size of a value as JSON, in bytes.
func size(of any) int {
	data, err := json.Marshal(of)
	if err != nil {
		panic(err) // they are plain data
	}
	return len(data)
}

func governedRules(p *policyset.Policy) []admissionv1.RuleWithOperations {
	var rules []admissionv1.RuleWithOperations
	for _, r := range p.Resources {
		rules = append(rules, deleteRule(r.APIGroups, r.Resources, scopeOf(p)))
	}
	return rules
}

// scopeOf returns the scope of what a policy may govern. Cluster-scoped objects pass any
// namespace selector, and a namespaced policy does not govern them.
func scopeOf(p *policyset.Policy) admissionv1.ScopeType {
	if p.Key.Namespace != "" {
		return admissionv1.NamespacedScope
	}
	return admissionv1.AllScopes
}

func deleteRule(groups, resources []string, scope admissionv1.ScopeType) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: resources, Scope: ptr.To(scope)},
	}
}

// dependsOn matches objects that have an owner of a kind that a policy governs.
func (c *Companion) dependsOn(p *policyset.Policy) admissionv1.MatchCondition {
	var kinds []string
	for _, rule := range p.Policy.Rules {
		for _, r := range rule.NamedResources() {
			if gk, ok := c.options.KindOf(r); ok {
				kinds = append(kinds, fmt.Sprintf("r.kind == %q", gk.Kind))
			}
		}
	}
	slices.Sort(kinds)
	expression := "false" // what it governs is not served
	if kinds = slices.Compact(kinds); len(kinds) != 0 {
		expression = "has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(r, " + strings.Join(kinds, " || ") + ")"
	}
	if len(expression) > maxRulesSize {
		expression = "has(oldObject.metadata.ownerReferences)"
	}
	return admissionv1.MatchCondition{Name: dependsOnGoverned, Expression: expression}
}

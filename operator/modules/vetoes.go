package modules

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
)

// VetoName is the name of the ValidatingWebhookConfiguration.
const VetoName = "gleaner-veto"

// VetoPath is where the webhook is served that vetoes deletes, with what Keeper.UpTo
// wants to know after it.
const VetoPath = "/veto"

const (
	vetoSuffix = ".veto.gleaner.dev"

	dependsOnGoverned = "gleaner.dev/depends-on-governed"

	// collectorCondition is the condition by which only the other collector is asked about.
	collectorCondition = "gleaner.dev/by-the-collector"

	// vetoSeconds is what the API server gives an answer, which takes less than one.
	vetoSeconds = 3

	// mostVetoes bounds the webhooks that differ in what they select. Beyond it there
	// is one for all.
	mostVetoes = 50

	// mostRules and mostSelector bound, in bytes, what a webhook selects by. Beyond it
	// all is asked about that might be meant: one policy must not make the configuration
	// too large for the API server, which would then hear of no policy any more.
	mostRules, mostSelector = 4 << 10, 2 << 10
)

// Veto says how the API server is to ask about what another collector deletes.
type Veto struct {
	// User is whom the other collector is taken to work as, until it shows who it is, and
	// for good if it was Given by somebody.
	User  string
	Given bool

	// Canary is the label of the objects that have it show itself, unless there are none:
	// NoCanary.
	Canary   string
	NoCanary bool

	// Client is where the webhook is served, at VetoPath. Its CABundle is not used: see
	// CA; and its path begins with the Secret.
	Client admissionv1.WebhookClientConfig

	// Placed is called when the API server has been told, and may be nil.
	Placed func()

	// CA is what its certificate is signed by; nil: there is none yet.
	CA func() []byte

	// Secret is what its paths begin with.
	Secret func() string

	// KindOf is the kind of a resource, if discovery has seen it.
	KindOf func(schema.GroupResource) (schema.GroupKind, bool)

	state string // of the policies on account of which is asked: see Keeper.UpTo
}

// errNoCertificate passes by itself: see CertificateChanged.
var errNoCertificate = errors.New("there is no certificate for the webhook yet")

// CertificateChanged has the webhook's configuration looked at again.
func (k *Keeper) CertificateChanged() { k.poke() }

// placeVetoes has the API server ask about what the other collector deletes of what
// policies govern, and about nothing else. Without such policies it asks nobody.
func (k *Keeper) placeVetoes(ctx context.Context, b *build) error {
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: VetoName}}
	if err := k.learn(ctx); err != nil {
		return err
	}
	v := *k.options.Veto
	v.User, v.state = k.CollectorUser(), b.state
	webhooks := b.vetoes(&v, k.options.Namespace)
	if len(webhooks) == 0 {
		return k.removeConfiguration(ctx, configuration)
	}
	gleaner, err := k.whoAmI(ctx)
	if err != nil {
		return err
	}
	webhooks = append(webhooks, v.overhears(k.options.Namespace, gleaner))
	ca := v.CA()
	if len(ca) == 0 {
		return errNoCertificate
	}
	home, err := k.home(ctx)
	if err != nil {
		return err
	}
	if err := k.ensure(ctx, configuration, func() {
		own(configuration)
		configuration.OwnerReferences = home
		k.note(configuration)
		for i := range webhooks {
			webhooks[i].ClientConfig.CABundle = ca
		}
		configuration.Webhooks = webhooks
	}); err != nil {
		return err
	}
	if v.Placed != nil {
		v.Placed()
	}
	return nil
}

// vetoes are the webhooks that the policies call for: one for each way to select
// objects.
func (b *build) vetoes(v *Veto, namespace string) []admissionv1.ValidatingWebhook {
	found := map[string]*admissionv1.ValidatingWebhook{}
	for _, p := range b.policies {
		if !p.policy.Answers(hostabi.HookCollect) {
			continue
		}
		objects := cmp.Or(bounded(p.objects), &metav1.LabelSelector{}).DeepCopy()
		add(found, v.webhook(p, bounded(p.namespaces), namespace, objects), p.collected())
	}
	for _, p := range b.policies {
		if p.mayOverride() {
			w := v.webhook(p, p.dependentsNamespaces(), namespace, &metav1.LabelSelector{})
			w.MatchConditions = append(w.MatchConditions, v.dependsOn(p))
			add(found, w, []admissionv1.RuleWithOperations{p.deletingAny()})
		}
	}
	if len(found) > mostVetoes {
		found = inOne(found)
	}
	list := make([]admissionv1.ValidatingWebhook, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		w := found[name]
		w.Name = name + vetoSuffix
		slices.SortFunc(w.Rules, func(a, b admissionv1.RuleWithOperations) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		w.Rules = boundedRules(slices.CompactFunc(w.Rules, func(a, b admissionv1.RuleWithOperations) bool { return fmt.Sprint(a) == fmt.Sprint(b) }))
		list = append(list, *w)
	}
	return list
}

// webhook is a webhook for what a policy selects, still without rules. Fields that the
// API server would fill in are filled in here, so that nothing differs when nothing
// has changed.
func (v *Veto) webhook(p *policyState, namespaces *metav1.LabelSelector, namespace string, objects *metav1.LabelSelector) *admissionv1.ValidatingWebhook {
	failure := admissionv1.Fail
	if !p.policy.Enforce || p.spec.OnFault == v1alpha1.OnFaultDefault && !p.hostError { // what the host fails is held
		failure = admissionv1.Ignore
	}
	conditions := []admissionv1.MatchCondition{
		{Name: collectorCondition, Expression: fmt.Sprintf("request.userInfo.username == %q", v.User)},
	}
	if !strings.HasSuffix(v.User, collectorAccount) {
		conditions = append(conditions, admissionv1.MatchCondition{Name: "gleaner.dev/as-the-collector-does", Expression: collects})
	}
	return &admissionv1.ValidatingWebhook{
		ClientConfig: v.at(VetoPath + "/" + v.state), FailurePolicy: &failure, MatchPolicy: ptr.To(admissionv1.Equivalent),
		SideEffects: ptr.To(admissionv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: ptr.To[int32](vetoSeconds),
		AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector:       p.within(namespaces, namespace), ObjectSelector: objects,
		MatchConditions: conditions,
	}
}

const (
	// collectorAccount ends the name of a user that is the collector, and no other controller.
	collectorAccount = ":generic-garbage-collector"

	// collects is true of the collector's deletes, and not of most others' that may be by
	// the same user, such as the controller of namespaces.
	collects = "has(request.options.propagationPolicy) && has(request.options.preconditions) && has(request.options.preconditions.uid) && " +
		"has(oldObject.metadata.ownerReferences)"
)

// add takes up a webhook, with the one that selects the same if there is one.
func add(found map[string]*admissionv1.ValidatingWebhook, w *admissionv1.ValidatingWebhook, rules []admissionv1.RuleWithOperations) {
	key, err := json.Marshal([]any{w.NamespaceSelector, w.ObjectSelector, w.MatchConditions})
	if err != nil {
		panic(err) // they are plain data
	}
	sum := sha256.Sum256(key)
	name := "s" + hex.EncodeToString(sum[:6])
	if same, ok := found[name]; ok {
		if *w.FailurePolicy == admissionv1.Fail {
			same.FailurePolicy = w.FailurePolicy // it takes all of them to ignore a failure
		}
		w = same
	}
	w.Rules = append(w.Rules, rules...)
	found[name] = w
}

// inOne makes one webhook of many, which selects more than each.
func inOne(found map[string]*admissionv1.ValidatingWebhook) map[string]*admissionv1.ValidatingWebhook {
	var all *admissionv1.ValidatingWebhook
	for _, w := range found {
		if all == nil {
			all = w.DeepCopy()
			all.Rules, all.ObjectSelector, all.MatchConditions = nil, &metav1.LabelSelector{}, byCollector(w.MatchConditions)
			all.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: exempted(w.NamespaceSelector)}
		}
		if *w.FailurePolicy == admissionv1.Fail {
			all.FailurePolicy = w.FailurePolicy
		}
		all.Rules = append(all.Rules, w.Rules...)
	}
	return map[string]*admissionv1.ValidatingWebhook{"all": all}
}

// byCollector are those of the conditions that are about who deletes.
func byCollector(conditions []admissionv1.MatchCondition) []admissionv1.MatchCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c admissionv1.MatchCondition) bool { return c.Name == dependsOnGoverned })
}

// exempted is the part of a selector of namespaces that exempts some by name.
func exempted(s *metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	return s.MatchExpressions[len(s.MatchExpressions)-1:]
}

// vetoedNamespaces selects the namespaces that a policy governs, without those in
// which nobody is to depend on a webhook.
func (p *policyState) vetoedNamespaces(namespace string) *metav1.LabelSelector {
	return p.within(p.namespaces, namespace)
}

// within narrows a selector of namespaces down to those that a policy may be for. What
// exempts some comes last.
func (p *policyState) within(namespaces *metav1.LabelSelector, namespace string) *metav1.LabelSelector {
	s := cmp.Or(namespaces, &metav1.LabelSelector{}).DeepCopy()
	if p.key.Namespace != "" {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{p.key.Namespace},
		})
	}
	s.MatchExpressions = append(s.MatchExpressions, exempt(namespace))
	return s
}

// dependentsNamespaces selects where the dependents may be of what a policy governs:
// everywhere, if it governs what is in no namespace.
func (p *policyState) dependentsNamespaces() *metav1.LabelSelector {
	if s := p.policy.Namespaces; s != nil && s.Matches(labels.Set{}) {
		return nil
	}
	return bounded(p.namespaces)
}

// bounded is a selector, or nil, which selects all, in place of one that is too large.
func bounded(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s != nil && size(s) > mostSelector {
		return nil
	}
	return s
}

// boundedRules are rules, or one that selects all, in place of too many.
func boundedRules(rules []admissionv1.RuleWithOperations) []admissionv1.RuleWithOperations {
	if size(rules) <= mostRules {
		return rules
	}
	scope := admissionv1.NamespacedScope
	for _, r := range rules {
		if *r.Scope != scope {
			scope = admissionv1.AllScopes
		}
	}
	return []admissionv1.RuleWithOperations{deleting([]string{"*"}, []string{"*"}, scope)}
}

func size(of any) int {
	data, err := json.Marshal(of)
	if err != nil {
		panic(err) // they are plain data
	}
	return len(data)
}

// exempt is what namespaces are exempt from admission by Gleaner: the operator's own,
// and that of the cluster's.
func exempt(namespace string) metav1.LabelSelectorRequirement {
	names := []string{metav1.NamespaceSystem}
	if namespace != metav1.NamespaceSystem {
		names = append(names, namespace)
	}
	return metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: names}
}

func (p *policyState) collected() []admissionv1.RuleWithOperations {
	var rules []admissionv1.RuleWithOperations
	for _, r := range p.resources {
		rules = append(rules, deleting(r.APIGroups, r.Resources, p.scope()))
	}
	return rules
}

// deletingAny selects deletes of all that a policy might have a say about.
func (p *policyState) deletingAny() admissionv1.RuleWithOperations {
	return deleting([]string{"*"}, []string{"*"}, p.scope())
}

// scope is where the objects are that a policy may have a say about. What is in no
// namespace passes any selector of namespaces, and is none of a namespace's business.
func (p *policyState) scope() admissionv1.ScopeType {
	if p.key.Namespace != "" {
		return admissionv1.NamespacedScope
	}
	return admissionv1.AllScopes
}

func deleting(groups, resources []string, scope admissionv1.ScopeType) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: resources, Scope: ptr.To(scope)},
	}
}

// dependsOn is true of the objects that name an owner of a kind that a policy governs.
func (v *Veto) dependsOn(p *policyState) admissionv1.MatchCondition {
	var kinds []string
	for _, rule := range p.policy.Rules {
		for _, r := range rule.Names() {
			if gk, ok := v.KindOf(r); ok {
				kinds = append(kinds, fmt.Sprintf("r.kind == %q", gk.Kind))
			}
		}
	}
	slices.Sort(kinds)
	expression := "false" // nobody serves what it governs
	if kinds = slices.Compact(kinds); len(kinds) != 0 {
		expression = "has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(r, " + strings.Join(kinds, " || ") + ")"
	}
	if len(expression) > mostRules {
		expression = "has(oldObject.metadata.ownerReferences)"
	}
	return admissionv1.MatchCondition{Name: dependsOnGoverned, Expression: expression}
}

// Package permissions returns the minimum permissions that the operator needs for its mode and the
// existing policies and finalizers, and checks which of them a service account is missing.
//
// A test runs a real operator with exactly these permissions.
package permissions

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
)

// Setup is the operator's configuration, as far as it affects permissions.
type Setup struct {
	Companion           bool   // companion mode
	Namespace           string // of the operator
	ServiceAccount      string // service account in that namespace
	ExternalCertificate bool   // the webhook's certificate is not issued by the operator

	// Exceptions are resources of dependents for which modules may make exceptions: for fixed
	// verdicts they are known, but not for modules.
	Exceptions []schema.GroupResource

	// Resource maps a kind to its resource; false: unknown.
	Resource func(schema.GroupKind) (schema.GroupResource, bool)
}

// SetupOf returns the setup of the operator's pods; without pods, that of the default
// installation.
func SetupOf(pods []corev1.Pod) Setup {
	s := Setup{Namespace: "gleaner-system", ServiceAccount: "gleaner"}
	s.Resource = func(schema.GroupKind) (schema.GroupResource, bool) { return schema.GroupResource{}, false }
	for _, pod := range pods {
		s.Namespace, s.ServiceAccount = pod.Namespace, pod.Spec.ServiceAccountName
		for _, c := range pod.Spec.Containers {
			collector, _ := FlagValue(c, "--collector")
			dir, _ := FlagValue(c, "--webhook-cert-dir")
			s.Companion, s.ExternalCertificate = s.Companion || collector == "companion", s.ExternalCertificate || dir != ""
		}
	}
	return s
}

// FlagValue returns the value of a flag on a container's command line; the last one wins.
func FlagValue(c corev1.Container, flag string) (value string, given bool) {
	words := slices.Concat(c.Command, c.Args)
	for i, word := range words {
		if text, one := strings.CutPrefix(word, flag+"="); one {
			value, given = text, true
		} else if word == flag && i+1 < len(words) {
			value, given = words[i+1], true
		}
	}
	return value, given
}

// Rule is an RBAC rule that the operator needs.
type Rule struct {
	Namespace string // none: all namespaces
	Groups    []string
	Resources []string
	Names     []string // none: all
	Verbs     []string
	Reason    string
}

// Required returns the rules that the operator needs.
func Required(s Setup, b *finalizers.Resources) []Rule {
	rights := append([]Rule{readRules(s)}, s.writeRules(b)...)
	rights = append(rights, s.blockingRules(b)...)
	rights = append(rights, reportingRules()...)
	rights = append(rights, resourceRules(b)...)
	rights = append(rights, s.admissionRules(b)...)
	rights = append(rights, s.operatorNamespaceRules()...)
	return append(rights, impersonationRules(b)...)
}

// everything matches everything.
var everything = []string{"*"}

func readRules(s Setup) Rule {
	r := Rule{
		Groups: everything, Resources: everything, Verbs: []string{"get", "list", "watch"},
		Reason: "Owners may be of any type, including types that are defined later. RBAC can't restrict reads to metadata, " +
			"so this includes the contents of Secrets.",
	}
	if !s.Companion {
		r.Verbs = append(r.Verbs, "patch", "delete")
		r.Reason = "A garbage collector collects objects of any type, including types that are defined later. " + r.Reason
	}
	return r
}

// writeRules returns the rules to write the objects that policies and finalizers select. In primary
// mode, they are already included.
func (s Setup) writeRules(b *finalizers.Resources) []Rule {
	if !s.Companion {
		return nil
	}
	var rights []Rule
	for _, p := range b.Policies {
		if p.Spec.Mode != v1alpha1.ModeEnforce {
			continue
		}
		rights = append(rights, selectedRules(p.Namespace, p.Spec.Resources, []string{"patch", "delete"}, p.String()+" decides about these objects.")...)
		rights = append(rights, s.exceptionRules(p)...)
	}
	for _, f := range b.Finalizers {
		if f.Spec.Mode == v1alpha1.ModeEnforce {
			rights = append(rights, selectedRules(f.Namespace, f.Spec.Resources, []string{"patch"}, f.String()+" adds its finalizer to these objects, and removes it.")...)
		}
	}
	for _, a := range b.Archives {
		if a.Spec.DeletedBy != v1alpha1.DeletedByGleaner {
			rights = append(rights, selectedRules(a.Namespace, a.Spec.Resources, []string{"patch"}, a.String()+" adds its finalizer to these objects, and removes it.")...)
		}
	}
	for _, r := range b.Retentions {
		if r.Spec.Mode != v1alpha1.ModeEnforce {
			continue
		}
		for _, rule := range r.Spec.Resources {
			rights = append(rights, Rule{
				Namespace: r.Namespace, Groups: rule.APIGroups, Resources: rule.Resources, Verbs: []string{"delete"}, Reason: r.String() + " removes these objects.",
			})
		}
	}
	return rights
}

// blockingRules returns the rules to write owner references that block, some of which the admission
// plugin OwnerReferencesPermissionEnforcement considers new.
func (s Setup) blockingRules(b *finalizers.Resources) []Rule {
	right := func(namespace string) Rule {
		return Rule{
			Namespace: namespace, Groups: everything, Resources: []string{"*/finalizers"}, Verbs: []string{"update"},
			Reason: "If one of two owner references with the same UID is removed, the admission plugin OwnerReferencesPermissionEnforcement " +
				"considers this as setting blockOwnerDeletion on the other. The permission allows nothing else.",
		}
	}
	if !s.Companion {
		return []Rule{right("")}
	}
	var namespaces []string
	for _, p := range b.Policies {
		if p.Spec.Mode == v1alpha1.ModeEnforce {
			namespaces = append(namespaces, p.Namespace)
		}
	}
	if slices.Contains(namespaces, "") {
		return []Rule{right("")}
	}
	slices.Sort(namespaces)
	var rights []Rule
	for _, namespace := range slices.Compact(namespaces) {
		rights = append(rights, right(namespace))
	}
	return rights
}

func selectedRules(namespace string, rules []v1alpha1.ResourceRule, verbs []string, why string) []Rule {
	var rights []Rule
	for _, r := range rules {
		rights = append(rights, Rule{Namespace: namespace, Groups: r.APIGroups, Resources: r.Resources, Verbs: verbs, Reason: why})
	}
	return rights
}

// exceptionRules returns the rules to write dependents for which a policy makes exceptions, or which it
// has deleted in order.
func (s Setup) exceptionRules(p finalizers.Policy) []Rule {
	var excepted []schema.GroupResource
	switch {
	case p.Spec.Module != nil && p.HasHook("propagate"):
		excepted = s.Exceptions
	case p.Spec.Fixed != nil && p.Spec.Fixed.Propagate != nil:
		for _, d := range p.Spec.Fixed.Propagate.Dependents {
			excepted = append(excepted, s.resourceOf(schema.GroupKind{Group: d.Group, Kind: d.Kind}))
		}
		for _, wave := range p.Spec.Fixed.Propagate.Order {
			for _, kind := range wave {
				excepted = append(excepted, s.resourceOf(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}))
			}
		}
	}
	var rights []Rule
	for _, r := range excepted {
		rights = append(rights, Rule{
			Namespace: p.Namespace, Groups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{"patch", "delete"},
			Reason: p.String() + " decides about these dependents separately.",
		})
	}
	return rights
}

// resourceOf returns the resource of a kind: that with the usual plural, if it is not known.
func (s Setup) resourceOf(kind schema.GroupKind) schema.GroupResource {
	if resource, ok := s.Resource(kind); ok {
		return resource
	}
	return schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}
}

// reportingRules returns the rules to report decisions, and to authorize clients of the endpoints.
func reportingRules() []Rule {
	return []Rule{
		{Groups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}, Reason: "Events about objects, in any namespace."},
		{Groups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}, Reason: "Authentication of clients of /metrics and /debug/gc."},
		{Groups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}, Reason: "Authorization of these clients."},
	}
}

// resourceRules returns the rules for Gleaner's own resources.
func resourceRules(b *finalizers.Resources) []Rule {
	group := []string{v1alpha1.GroupVersion.Group}
	status := []string{"clusterfinalizers/status", "clustergcpolicies/status", "clusterpolicymodules/status", "finalizers/status", "gcpolicies/status", "policymodules/status"}
	rights := []Rule{
		{Groups: group, Resources: status, Verbs: []string{"patch"}, Reason: "Status of policies, finalizers and modules."},
		{
			Groups: group, Resources: []string{"clusterfinalizers", "clusterpolicymodules", "finalizers", "policymodules"}, Verbs: []string{"patch"},
			Reason: "Finalizers and their modules are kept while objects need them.",
		},
		{Groups: group, Resources: []string{"clusterpauses/status", "pauses/status"}, Verbs: []string{"patch"}, Reason: "Status of pauses."},
		{
			Groups: group, Resources: []string{"clusterdeletionbudgets/status", "deletionbudgets/status"}, Verbs: []string{"patch"},
			Reason: "Deletions are counted in the status of budgets.",
		},
	}
	if len(b.Archives) != 0 {
		rights = append(rights,
			Rule{Groups: group, Resources: []string{"archivepolicies/status", "clusterarchivepolicies/status"}, Verbs: []string{"patch"}, Reason: "Status of archive policies."},
			Rule{Groups: group, Resources: []string{"archivepolicies", "clusterarchivepolicies"}, Verbs: []string{"patch"}, Reason: "Archive policies are kept while objects need them."})
	}
	if len(b.Retentions) != 0 {
		rights = append(rights,
			Rule{Groups: group, Resources: []string{"clusterretentionpolicies/status", "retentionpolicies/status"}, Verbs: []string{"patch"}, Reason: "Status of retention policies."})
	}
	return rights
}

// admissionRules returns the rules for admission policies and webhooks.
func (s Setup) admissionRules(b *finalizers.Resources) []Rule {
	right := func(why string, resources ...string) Rule {
		return Rule{Groups: []string{"admissionregistration.k8s.io"}, Resources: resources, Verbs: []string{"create", "update", "delete"}, Reason: why}
	}
	var rights []Rule
	attaches := slices.ContainsFunc(b.Policies, func(p finalizers.Policy) bool { return p.Namespace == "" && p.Holds() }) ||
		slices.ContainsFunc(b.Finalizers, func(f finalizers.FinalizerResource) bool {
			return f.Namespace == "" && f.Spec.Attach && f.Spec.Mode == v1alpha1.ModeEnforce
		}) ||
		slices.ContainsFunc(b.Archives, func(a finalizers.Archive) bool {
			return a.Namespace == "" && a.Spec.DeletedBy != v1alpha1.DeletedByGleaner
		})
	if attaches {
		rights = append(rights, right("Adds holds and finalizers to objects on creation.",
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"))
	}
	protects := slices.ContainsFunc(b.Policies, finalizers.Policy.Protects)
	if protects {
		rights = append(rights, right("Denies users' requests to delete what policies protect.",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings"))
	}
	if !s.Companion {
		if slices.ContainsFunc(b.Policies, func(p finalizers.Policy) bool { return p.Spec.Module != nil && p.Protects() }) {
			rights = append(rights, right("The same for policies with modules, by webhooks.", "validatingwebhookconfigurations"))
		}
		return rights
	}
	if attaches {
		rights = append(rights, right("The same for an API server without MutatingAdmissionPolicies.", "mutatingwebhookconfigurations"))
	}
	if !protects && slices.ContainsFunc(b.Policies, func(p finalizers.Policy) bool {
		return p.Holds() && p.Spec.ExplicitPropagation == v1alpha1.ExplicitPropagationOverride
	}) {
		rights = append(rights, right("Denies explicit orphan deletions for policies that override them.",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings"))
	}
	webhook := right("Configuration of the veto webhook, for the policies and the user of the built-in garbage collector.", "validatingwebhookconfigurations")
	webhook.Verbs = append(webhook.Verbs, "patch")
	return append(rights, webhook)
}

// operatorNamespaceRules returns the rules in the operator's namespace.
func (s Setup) operatorNamespaceRules() []Rule {
	rights := []Rule{
		{
			Namespace: s.Namespace, Groups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "update"},
			Reason: "Leader election.",
		},
		{
			Namespace: s.Namespace, Groups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update", "patch", "delete"},
			Reason: "The canary, and the parameters of admission policies.",
		},
		{
			Namespace: s.Namespace, Groups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"},
			Reason: "Keys of state annotations.",
		},
	}
	if !s.Companion || s.ExternalCertificate {
		return rights
	}
	return append(rights, Rule{
		Namespace: s.Namespace, Groups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "update"}, Reason: "Certificate of the webhook.",
	})
}

// impersonationRules returns the rules to impersonate the service accounts that policies and finalizers
// name.
func impersonationRules(b *finalizers.Resources) []Rule {
	by := map[string][]string{}
	name := func(own string, ref *v1alpha1.ServiceAccountReference) {
		if ref == nil {
			return
		}
		namespace := cmp.Or(ref.Namespace, own)
		if !slices.Contains(by[namespace], ref.Name) {
			by[namespace] = append(by[namespace], ref.Name)
		}
	}
	for _, p := range b.Policies {
		name(p.Namespace, p.Spec.ServiceAccount)
	}
	for _, f := range b.Finalizers {
		name(f.Namespace, f.Spec.ServiceAccount)
	}
	var rights []Rule
	for namespace, names := range by {
		slices.Sort(names)
		rights = append(rights, Rule{
			Namespace: namespace, Groups: []string{""}, Resources: []string{"serviceaccounts"}, Names: names, Verbs: []string{"impersonate"},
			Reason: "Modules of policies read, and those of finalizers read and write, as these service accounts.",
		})
	}
	slices.SortFunc(rights, func(a, b Rule) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return rights
}

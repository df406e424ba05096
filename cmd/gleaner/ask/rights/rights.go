// Package rights says which rights the operator needs, exactly, for the policies
// and finalizers that there are, and in which way it runs; and which of them a
// service account is missing.
//
// What it says is held against a real operator by a test, which works with these
// rights and no others.
package rights

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// Setup is how the operator runs.
type Setup struct {
	Companion bool   // beside another collector
	Namespace string // its own
	Account   string // its service account, in that namespace
	Certified bool   // the webhook's certificate is from elsewhere

	// Exceptions are resources of dependents of which modules may make exceptions.
	// Which those are nobody can tell of a module; of fixed verdicts it is known.
	Exceptions []schema.GroupResource

	// Resource is what a kind's resource is called; false: it is not known.
	Resource func(schema.GroupKind) (schema.GroupResource, bool)
}

// SetupOf reads from the operator's pods how it runs; without any, it is as it is
// installed by default.
func SetupOf(pods []corev1.Pod) Setup {
	s := Setup{Namespace: "gleaner-system", Account: "gleaner"}
	s.Resource = func(schema.GroupKind) (schema.GroupResource, bool) { return schema.GroupResource{}, false }
	for _, pod := range pods {
		s.Namespace, s.Account = pod.Namespace, pod.Spec.ServiceAccountName
		for _, c := range pod.Spec.Containers {
			collector, _ := FlagOf(c, "--collector")
			folder, _ := FlagOf(c, "--webhook-cert-dir")
			s.Companion, s.Certified = s.Companion || collector == "companion", s.Certified || folder != ""
		}
	}
	return s
}

// FlagOf is the value that a container's command line gives a flag: of several the last
// counts, as for the flag itself.
func FlagOf(c corev1.Container, flag string) (value string, given bool) {
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

// Right is something that the operator needs to be allowed.
type Right struct {
	Namespace string // none: everywhere
	Groups    []string
	Resources []string
	Names     []string // none: all
	Verbs     []string
	Why       string
}

// Needed are the rights that the operator needs.
func Needed(s Setup, b *whose.Book) []Right {
	rights := append([]Right{reads(s)}, s.writes(b)...)
	rights = append(rights, s.blocking(b)...)
	rights = append(rights, telling()...)
	rights = append(rights, resources()...)
	rights = append(rights, s.admission(b)...)
	rights = append(rights, s.own()...)
	return append(rights, accounts(b)...)
}

// all is everything that there is.
var all = []string{"*"}

func reads(s Setup) Right {
	r := Right{
		Groups: all, Resources: all, Verbs: []string{"get", "list", "watch"},
		Why: "An object may be owned by any other, of types as well that are defined later. There is no right to read metadata " +
			"alone, so this includes the contents of Secrets.",
	}
	if !s.Companion {
		r.Verbs = append(r.Verbs, "patch", "delete")
		r.Why = "A garbage collector collects anything, also types that are defined later. " + r.Why
	}
	return r
}

// writes are the rights to write what policies and finalizers select. The only
// collector of a cluster has them already.
func (s Setup) writes(b *whose.Book) []Right {
	if !s.Companion {
		return nil
	}
	var rights []Right
	for _, p := range b.Policies {
		if p.Spec.Mode != v1alpha1.ModeEnforce {
			continue
		}
		rights = append(rights, selected(p.Namespace, p.Spec.Resources, []string{"patch", "delete"}, p.String()+" decides what becomes of these.")...)
		rights = append(rights, s.exceptions(p)...)
	}
	for _, f := range b.Finalizers {
		if f.Spec.Mode == v1alpha1.ModeEnforce {
			rights = append(rights, selected(f.Namespace, f.Spec.Resources, []string{"patch"}, f.String()+" puts its finalizer on these, and takes it off.")...)
		}
	}
	return rights
}

// blocking are the rights to write back references that block, of which the admission
// plugin OwnerReferencesPermissionEnforcement takes some for new.
func (s Setup) blocking(b *whose.Book) []Right {
	right := func(namespace string) Right {
		return Right{
			Namespace: namespace, Groups: all, Resources: []string{"*/finalizers"}, Verbs: []string{"update"},
			Why: "Of two references with the same UID one may be dropped, which the admission plugin OwnerReferencesPermissionEnforcement " +
				"takes for setting the other's blockOwnerDeletion. It allows nothing else.",
		}
	}
	if !s.Companion {
		return []Right{right("")}
	}
	var namespaces []string
	for _, p := range b.Policies {
		if p.Spec.Mode == v1alpha1.ModeEnforce {
			namespaces = append(namespaces, p.Namespace)
		}
	}
	if slices.Contains(namespaces, "") {
		return []Right{right("")}
	}
	slices.Sort(namespaces)
	var rights []Right
	for _, namespace := range slices.Compact(namespaces) {
		rights = append(rights, right(namespace))
	}
	return rights
}

func selected(namespace string, rules []v1alpha1.ResourceRule, verbs []string, why string) []Right {
	var rights []Right
	for _, r := range rules {
		rights = append(rights, Right{Namespace: namespace, Groups: r.APIGroups, Resources: r.Resources, Verbs: verbs, Why: why})
	}
	return rights
}

// exceptions are the rights to write dependents that a policy makes exceptions of.
func (s Setup) exceptions(p whose.Policy) []Right {
	var excepted []schema.GroupResource
	switch {
	case p.Spec.Module != nil && p.Answers("propagate"):
		excepted = s.Exceptions
	case p.Spec.Fixed != nil && p.Spec.Fixed.Propagate != nil:
		for _, d := range p.Spec.Fixed.Propagate.Dependents {
			kind := schema.GroupKind{Group: d.Group, Kind: d.Kind}
			resource, ok := s.Resource(kind)
			if !ok { // as it is called almost always
				resource = schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}
			}
			excepted = append(excepted, resource)
		}
	}
	var rights []Right
	for _, r := range excepted {
		rights = append(rights, Right{
			Namespace: p.Namespace, Groups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{"patch", "delete"},
			Why: p.String() + " makes exceptions of these, where they are dependents.",
		})
	}
	return rights
}

// telling are the rights to say what was decided, and to whom it may be shown.
func telling() []Right {
	return []Right{
		{Groups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}, Why: "What it tells about objects, anywhere."},
		{Groups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}, Why: "Who asks /metrics and /debug/gc."},
		{Groups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}, Why: "What may be shown to them."},
	}
}

// resources are the rights to Gleaner's own resources.
func resources() []Right {
	group := []string{v1alpha1.GroupVersion.Group}
	status := []string{"clusterfinalizers/status", "clustergcpolicies/status", "clusterpolicymodules/status", "finalizers/status", "gcpolicies/status", "policymodules/status"}
	return []Right{
		{Groups: group, Resources: status, Verbs: []string{"patch"}, Why: "What it makes of policies, finalizers and modules."},
		{
			Groups: group, Resources: []string{"clusterfinalizers", "clusterpolicymodules", "finalizers", "policymodules"}, Verbs: []string{"patch"},
			Why: "A finalizer that objects have, and its module, are kept until nobody needs them.",
		},
	}
}

// admission are the rights to what the API server does for policies.
func (s Setup) admission(b *whose.Book) []Right {
	right := func(why string, resources ...string) Right {
		return Right{Groups: []string{"admissionregistration.k8s.io"}, Resources: resources, Verbs: []string{"create", "update", "delete"}, Why: why}
	}
	var rights []Right
	places := slices.ContainsFunc(b.Policies, func(p whose.Policy) bool { return p.Namespace == "" && p.Holds() }) ||
		slices.ContainsFunc(b.Finalizers, func(f whose.Serving) bool {
			return f.Namespace == "" && f.Spec.Attach && f.Spec.Mode == v1alpha1.ModeEnforce
		})
	if places {
		rights = append(rights, right("Holds and finalizers are put on objects as they are created.",
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"))
	}
	if !s.Companion {
		return rights
	}
	if places {
		rights = append(rights, right("The same on an API server without MutatingAdmissionPolicies.", "mutatingwebhookconfigurations"))
	}
	if slices.ContainsFunc(b.Policies, func(p whose.Policy) bool { return p.Holds() && p.Spec.Explicit == v1alpha1.ExplicitOverride }) {
		rights = append(rights, right("What refuses an explicit Orphan follows the policies that override it.",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings"))
	}
	webhook := right("The webhook's configuration follows the policies, and says who the other collector is.", "validatingwebhookconfigurations")
	webhook.Verbs = append(webhook.Verbs, "patch")
	return append(rights, webhook)
}

// own are the rights in the operator's namespace.
func (s Setup) own() []Right {
	rights := []Right{
		{
			Namespace: s.Namespace, Groups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "update"},
			Why: "Which replica works.",
		},
		{
			Namespace: s.Namespace, Groups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update", "patch", "delete"},
			Why: "The canary, and what arms the placing of holds.",
		},
		{
			Namespace: s.Namespace, Groups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"},
			Why: "The keys that sign state annotations.",
		},
	}
	if !s.Companion || s.Certified {
		return rights
	}
	return append(rights, Right{
		Namespace: s.Namespace, Groups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "update"}, Why: "The webhook's certificate.",
	})
}

// accounts are the rights to read and write as the service accounts that are named:
// those and no others.
func accounts(b *whose.Book) []Right {
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
	var rights []Right
	for namespace, names := range by {
		slices.Sort(names)
		rights = append(rights, Right{
			Namespace: namespace, Groups: []string{""}, Resources: []string{"serviceaccounts"}, Names: names, Verbs: []string{"impersonate"},
			Why: "Policies read, and finalizers read and write, as these.",
		})
	}
	slices.SortFunc(rights, func(a, b Right) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return rights
}

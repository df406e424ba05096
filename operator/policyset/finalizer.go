package policyset

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// Waits after failures of a finalizer, if its resource does not set them.
const (
	minRetry        = time.Second // also the least that counts
	defaultRetryMax = 5 * time.Minute
)

// buildFinalizers builds all finalizers. Two with the same name are both not served: the
// second could take the work of the first for done.
func (b *Builder) buildFinalizers(list []*Finalizer, modules map[string]*Module, states ModuleStates) []*policies.Finalizer {
	byEntry := map[string][]*Finalizer{}
	for _, f := range list {
		b.buildFinalizer(f, modules, states)
		byEntry[f.Finalizer.Entry] = append(byEntry[f.Finalizer.Entry], f)
	}
	all := make([]*policies.Finalizer, 0, len(list))
	for _, f := range list {
		if same := byEntry[f.Finalizer.Entry]; len(same) > 1 {
			var others []string
			for _, o := range same {
				if o != f {
					others = append(others, o.Policy.String())
				}
			}
			f.Loading = time.Time{}
			f.Problem = Problem{v1alpha1.ConditionAccepted, "NameTaken", fmt.Sprintf("%s has the same finalizer, %s, and so neither is served: "+
				"write another in one of them", strings.Join(others, " and "), f.Finalizer.Entry)}
		}
		if !f.Problem.IsZero() {
			f.Policy.Evaluator, f.Policy.NotReadyReason, f.Policy.Loading = nil, f.Problem.Message, !f.Loading.IsZero()
		}
		all = append(all, f.Finalizer)
	}
	return all
}

// buildFinalizer sets the finalizer of a resource. Whatever is wrong with the resource,
// it is the one that its objects wait for, and is not ready.
func (b *Builder) buildFinalizer(f *Finalizer, modules map[string]*Module, states ModuleStates) {
	f.Policy = &policies.Policy{
		Kind: f.Kind, Namespace: f.Key.Namespace, Name: f.Key.Name, Generation: f.Object.GetGeneration(),
		Enforce: f.Spec.Mode == v1alpha1.ModeEnforce, Hooks: []hostabi.Hook{hostabi.HookFinalize},
		ServiceAccount: f.account(f.Spec.ServiceAccount), Needs: policies.Needs(f.Spec.Needs),
	}
	if f.Spec.Settings != nil {
		f.Policy.Settings = f.Spec.Settings.Raw
	}
	f.Finalizer = &policies.Finalizer{
		Policy: f.Policy, UID: f.Object.GetUID(), Entry: f.entry(), Attach: f.attaches(), After: f.Spec.After,
		Deleting: f.Object.GetDeletionTimestamp() != nil, RecordBodies: f.Spec.RecordBodies, Deadline: durationOr(f.Spec.Deadline, 0),
		ReleaseAtDeadline: f.Spec.OnDeadline == v1alpha1.RemovalRelease, ReleaseOnRemoval: f.releasesOnRemoval(),
		RetryInitial: minRetry, RetryMax: defaultRetryMax,
	}
	if r := f.Spec.Retry; r != nil {
		f.Finalizer.RetryInitial = max(durationOr(r.Initial, minRetry), minRetry) // less may have been stored before the CRD had a minimum
		f.Finalizer.RetryMax = max(durationOr(r.Max, defaultRetryMax), f.Finalizer.RetryInitial)
	}
	f.Policy.Module = f.moduleName(f.Spec.Module) // which is in use, whatever is wrong here
	if err := b.setGrants(f); err != nil {
		f.refuse(v1alpha1.ConditionAccepted, "InvalidGrants", "grants: "+err.Error())
	}
	if !b.compileSelection(&f.Declaration) {
		return
	}
	m := f.module(f.Spec.Module, f.Spec.Grants != nil, modules)
	if m == nil {
		return
	}
	if !m.Content.HasHook(hostabi.HookFinalize) {
		f.refuse(v1alpha1.ConditionModuleReady, ReasonMissingHook, fmt.Sprintf(
			"%s does not answer finalize: write a rule, or export a function, for it", m))
		return
	}
	f.Policy.Needs = policies.LeastNeeds(f.Policy.Needs, m.Content.Needs)
	f.start(m, states)
}

// releasesOnRemoval reports whether the finalizer is removed from all objects once its
// resource is deleted. One that was always in Monitor changes nothing even then: its
// resource may be terminating because of another finalizer, as a foreground deletion adds.
func (f *Finalizer) releasesOnRemoval() bool {
	return f.Spec.OnRemoval == v1alpha1.RemovalRelease &&
		(f.Spec.Mode == v1alpha1.ModeEnforce || slices.Contains(f.Object.GetFinalizers(), v1alpha1.InUseFinalizer))
}

// attaches reports whether the finalizer may be added to objects: not before the resource
// has InUseFinalizer. Without that, the resource could be deleted at once, and the finalizer
// would stay on objects forever.
func (f *Finalizer) attaches() bool {
	return f.Spec.Attach && slices.Contains(f.Object.GetFinalizers(), v1alpha1.InUseFinalizer)
}

// entry returns the finalizer's entry of metadata.finalizers.
func (f *Finalizer) entry() string {
	if f.Key.Namespace == "" {
		return f.Spec.Finalizer
	}
	return f.Key.Namespace + "." + v1alpha1.GroupVersion.Group + "/" + f.Key.Name
}

func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// setGrants sets what the finalizer's module may ask for.
func (b *Builder) setGrants(f *Finalizer) error {
	g := f.Spec.Grants
	if g == nil {
		return nil
	}
	grants := &f.Finalizer.Grants
	grants.Read = f.reads(g.Read)
	for _, w := range g.Write {
		writes := policies.WriteRule{ReadRule: policies.ReadRule{
			Rule: policies.Rule{Groups: w.APIGroups, Resources: w.Resources}, Namespaces: f.within(w.Namespaces),
		}}
		for _, verb := range w.Verbs {
			writes.Verbs = append(writes.Verbs, policies.Verb(verb))
		}
		grants.Write = append(grants.Write, writes)
	}
	for i, h := range g.HTTP {
		granted, err := b.http(f, h)
		if err != nil {
			return fmt.Errorf("http[%d]: %w", i, err)
		}
		grants.HTTP = append(grants.HTTP, granted)
	}
	return b.rules.CheckGrants(*grants)
}

func (b *Builder) http(f *Finalizer, h v1alpha1.HTTPGrant) (granted policies.HTTPRule, err error) {
	granted.URL = h.URL
	for _, m := range h.Methods {
		granted.Methods = append(granted.Methods, string(m))
	}
	for _, from := range h.HeadersFrom {
		if granted.Headers == nil {
			granted.Headers = map[string]policies.SecretKey{}
		}
		granted.Headers[from.Header] = f.secretKey(from.SecretKeyRef)
	}
	if a := h.BasicAuth; a != nil {
		granted.BasicAuth = &policies.BasicAuth{Username: f.secretKey(a.Username), Password: f.secretKey(a.Password)}
	}
	if v := h.SigV4; v != nil {
		granted.SigV4 = &policies.SigV4{
			Region: v.Region, Service: cmp.Or(v.Service, "s3"),
			AccessKeyID: f.secretKey(v.AccessKeyID), SecretAccessKey: f.secretKey(v.SecretAccessKey),
		}
		if v.SessionToken != nil {
			token := f.secretKey(*v.SessionToken)
			granted.SigV4.SessionToken = &token
		}
	}
	if ca := h.CA; ca != nil && ca.SecretKeyRef != nil {
		granted.CA = &policies.CASource{SecretKey: f.secretKey(*ca.SecretKeyRef)}
	} else if ca != nil && ca.ConfigMapKeyRef != nil {
		granted.CA = &policies.CASource{SecretKey: f.secretKey(v1alpha1.SecretKeyReference(*ca.ConfigMapKeyRef)), ConfigMap: true}
	}
	for _, a := range h.Addresses {
		network, err := netip.ParsePrefix(a)
		if err != nil {
			return granted, fmt.Errorf("addresses: %w: write a network in CIDR notation, such as 10.96.0.17/32", err)
		}
		if network = network.Masked(); !b.mayReach(f, network) {
			return granted, fmt.Errorf("addresses: a Finalizer of a namespace may name only networks that the operator allows by --finalizer-networks, "+
				"and %s is not within them: have it allowed there, or write a ClusterFinalizer", network)
		}
		granted.Addresses = append(granted.Addresses, network)
	}
	return granted, nil
}

// mayReach reports whether a finalizer may grant requests to a network.
func (b *Builder) mayReach(f *Finalizer, network netip.Prefix) bool {
	return f.Key.Namespace == "" || slices.ContainsFunc(b.rules.Networks, func(allowed netip.Prefix) bool {
		return allowed.Bits() <= network.Bits() && allowed.Contains(network.Addr())
	})
}

// secretKey returns the key of a Secret or ConfigMap that a finalizer refers to: a
// namespaced one refers to its own namespace.
func (f *Finalizer) secretKey(ref v1alpha1.SecretKeyReference) policies.SecretKey {
	namespace := ref.Namespace
	if f.Key.Namespace != "" {
		namespace = f.Key.Namespace
	}
	return policies.SecretKey{NamespacedName: types.NamespacedName{Namespace: namespace, Name: ref.Name}, Key: ref.Key}
}

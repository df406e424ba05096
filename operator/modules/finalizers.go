package modules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies"
)

// Waits after failures, where a resource does not say.
const (
	retryInitial = time.Second // and the minimum
	retryMax     = 5 * time.Minute
)

// finalizerState is a Finalizer or ClusterFinalizer.
type finalizerState struct {
	asking
	spec      v1alpha1.FinalizerSpec
	status    *v1alpha1.FinalizerStatus
	finalizer *policies.Finalizer
}

func newFinalizerState(o client.Object, kind string, spec v1alpha1.FinalizerSpec, status *v1alpha1.FinalizerStatus) *finalizerState {
	return &finalizerState{
		asking: asking{object: o, kind: kind, key: client.ObjectKeyFromObject(o), selection: selection{
			spec.Resources, spec.NamespaceSelector, spec.ObjectSelector, spec.MatchConditions,
		}},
		spec: spec, status: status,
	}
}

// Finalizers returns those in force, with those that are not ready; known is false
// until they have been read once.
func (k *Keeper) Finalizers() (list []*policies.Finalizer, known bool) {
	if all := k.finalizers.Load(); all != nil {
		return *all, true
	}
	return nil, false
}

// makeFinalizers makes finalizers of their resources. Two of one name are both not
// served: whoever came second could take the first one's work for done.
func (k *Keeper) makeFinalizers(b *build, modules map[string]*moduleState, uses *modulestore.Uses) []*policies.Finalizer {
	by := map[string][]*finalizerState{}
	for _, s := range b.finalizers {
		k.makeFinalizer(s, modules, uses)
		by[s.finalizer.Entry] = append(by[s.finalizer.Entry], s)
	}
	all := make([]*policies.Finalizer, 0, len(b.finalizers))
	for _, s := range b.finalizers {
		if same := by[s.finalizer.Entry]; len(same) > 1 {
			var others []string
			for _, o := range same {
				if o != s {
					others = append(others, o.policy.String())
				}
			}
			s.loading = time.Time{}
			s.problem = problem{v1alpha1.ConditionAccepted, "NameTaken", fmt.Sprintf("%s has the same finalizer, %s, and so neither is served: "+
				"write another in one of them", strings.Join(others, " and "), s.finalizer.Entry)}
		}
		if s.problem.is() {
			s.policy.Asker, s.policy.NotReady, s.policy.Loading = nil, s.problem.message, !s.loading.IsZero()
		}
		all = append(all, s.finalizer)
	}
	return all
}

// makeFinalizer makes one. Whatever is wrong with it, it is the one that its
// objects wait for, and is not ready.
func (k *Keeper) makeFinalizer(s *finalizerState, modules map[string]*moduleState, uses *modulestore.Uses) {
	s.policy = &policies.Policy{
		Kind: s.kind, Namespace: s.key.Namespace, Name: s.key.Name, Generation: s.object.GetGeneration(),
		Enforce: s.spec.Mode == v1alpha1.ModeEnforce, Hooks: []hostabi.Hook{hostabi.HookFinalize},
		Account: s.account(s.spec.ServiceAccount), Needs: policies.Needs(s.spec.Needs),
	}
	if s.spec.Settings != nil {
		s.policy.Settings = s.spec.Settings.Raw
	}
	s.finalizer = &policies.Finalizer{
		Policy: s.policy, UID: s.object.GetUID(), Entry: s.entry(), Attach: s.attaches(), After: s.spec.After,
		Removed: s.object.GetDeletionTimestamp() != nil, Bodies: s.spec.RecordBodies, Longest: durationOr(s.spec.Deadline, 0),
		FreeAtDeadline: s.spec.OnDeadline == v1alpha1.RemovalRelease, FreeAtRemoval: s.freesAtRemoval(),
		RetryInitial: retryInitial, RetryMax: retryMax,
	}
	if r := s.spec.Retry; r != nil {
		s.finalizer.RetryInitial = max(durationOr(r.Initial, retryInitial), retryInitial) // less may have been stored before it was refused
		s.finalizer.RetryMax = max(durationOr(r.Max, retryMax), s.finalizer.RetryInitial)
	}
	s.policy.Module = s.moduleName(s.spec.Module) // which is kept, whatever is wrong here
	if err := k.grant(s); err != nil {
		s.refuse(v1alpha1.ConditionAccepted, "InvalidGrants", "grants: "+err.Error())
	}
	if !k.select_(&s.asking) {
		return
	}
	m := s.module(s.spec.Module, s.spec.Grants != nil, modules)
	if m == nil {
		return
	}
	if !m.compiled.Answers(hostabi.HookFinalize) {
		s.refuse(v1alpha1.ConditionModuleReady, "MissingHook", fmt.Sprintf(
			"%s does not answer finalize: write a rule, or export a function, for it", m.name()))
		return
	}
	k.start(&s.asking, m, uses)
}

// freesAtRemoval reports whether the finalizer is taken off all objects once its
// resource is deleted. One that was always in Monitor changes nothing even then: it may
// be seen to be deleted while somebody else's finalizer keeps it, as that of a delete in
// the foreground does.
func (s *finalizerState) freesAtRemoval() bool {
	return s.spec.OnRemoval == v1alpha1.RemovalRelease &&
		(s.spec.Mode == v1alpha1.ModeEnforce || slices.Contains(s.object.GetFinalizers(), InUse))
}

// attaches reports whether the finalizer may be put on objects: not before the resource
// is kept, or it could be deleted at once, and leave them with what nobody serves.
func (s *finalizerState) attaches() bool {
	return s.spec.Attach && slices.Contains(s.object.GetFinalizers(), InUse)
}

// entry is the finalizer's entry of metadata.finalizers.
func (s *finalizerState) entry() string {
	if s.key.Namespace == "" {
		return s.spec.Finalizer
	}
	return s.key.Namespace + "." + v1alpha1.GroupVersion.Group + "/" + s.key.Name
}

func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// grant says what the finalizer's module may ask for.
func (k *Keeper) grant(s *finalizerState) error {
	g := s.spec.Grants
	if g == nil {
		return nil
	}
	grants := &s.finalizer.Grants
	grants.Read = s.reads(g.Read)
	for _, w := range g.Write {
		writes := policies.Writes{Reads: policies.Reads{
			Rule: policies.Rule{Groups: w.APIGroups, Resources: w.Resources}, Namespaces: s.within(w.Namespaces),
		}}
		for _, verb := range w.Verbs {
			writes.Verbs = append(writes.Verbs, policies.Verb(verb))
		}
		grants.Write = append(grants.Write, writes)
	}
	for i, h := range g.HTTP {
		granted, err := k.http(s, h)
		if err != nil {
			return fmt.Errorf("http[%d]: %w", i, err)
		}
		grants.HTTP = append(grants.HTTP, granted)
	}
	return k.options.CheckGrants(*grants)
}

func (k *Keeper) http(s *finalizerState, h v1alpha1.HTTPGrant) (granted policies.HTTP, err error) {
	granted.URL = h.URL
	for _, m := range h.Methods {
		granted.Methods = append(granted.Methods, string(m))
	}
	for _, f := range h.HeadersFrom {
		if granted.Headers == nil {
			granted.Headers = map[string]policies.SecretKey{}
		}
		granted.Headers[f.Header] = s.secret(f.SecretKeyRef)
	}
	if b := h.BasicAuth; b != nil {
		granted.Basic = &policies.Basic{Username: s.secret(b.Username), Password: s.secret(b.Password)}
	}
	if v := h.SigV4; v != nil {
		granted.SigV4 = &policies.SigV4{
			Region: v.Region, Service: cmp.Or(v.Service, "s3"),
			AccessKeyID: s.secret(v.AccessKeyID), SecretAccessKey: s.secret(v.SecretAccessKey),
		}
		if v.SessionToken != nil {
			token := s.secret(*v.SessionToken)
			granted.SigV4.SessionToken = &token
		}
	}
	if ca := h.CA; ca != nil && ca.SecretKeyRef != nil {
		granted.CA = &policies.Certificates{SecretKey: s.secret(*ca.SecretKeyRef)}
	} else if ca != nil && ca.ConfigMapKeyRef != nil {
		granted.CA = &policies.Certificates{SecretKey: s.secret(v1alpha1.SecretKeyReference(*ca.ConfigMapKeyRef)), ConfigMap: true}
	}
	for _, a := range h.Addresses {
		network, err := netip.ParsePrefix(a)
		if err != nil {
			return granted, fmt.Errorf("addresses: %w: write a network with its length, such as 10.96.0.17/32", err)
		}
		if network = network.Masked(); !k.mayReach(s, network) {
			return granted, fmt.Errorf("addresses: a Finalizer of a namespace may name only networks that the operator allows by --finalizer-networks, "+
				"and %s is not within them: have it allowed there, or write a ClusterFinalizer", network)
		}
		granted.Addresses = append(granted.Addresses, network)
	}
	return granted, nil
}

// mayReach reports whether a finalizer may grant requests to a network.
func (k *Keeper) mayReach(s *finalizerState, network netip.Prefix) bool {
	return s.key.Namespace == "" || slices.ContainsFunc(k.options.Networks, func(allowed netip.Prefix) bool {
		return allowed.Bits() <= network.Bits() && allowed.Contains(network.Addr())
	})
}

// secret is where a Secret or ConfigMap is: a resource of a namespace names those of
// its own.
func (s *finalizerState) secret(ref v1alpha1.SecretKeyReference) policies.SecretKey {
	namespace := ref.Namespace
	if s.key.Namespace != "" {
		namespace = s.key.Namespace
	}
	return policies.SecretKey{NamespacedName: types.NamespacedName{Namespace: namespace, Name: ref.Name}, Key: ref.Key}
}

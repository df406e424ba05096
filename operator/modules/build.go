package modules

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

// build is what one reading of all resources came to.
type build struct {
	set      *policies.Set
	modules  []*moduleState
	policies []*policyState

	held map[Place]int

	// incomplete says that something could not be had that may be there later.
	incomplete bool
}

// moduleState is a PolicyModule or ClusterPolicyModule, and what became of it.
type moduleState struct {
	object client.Object
	kind   string
	key    types.NamespacedName
	spec   v1alpha1.PolicyModuleSpec
	status *v1alpha1.PolicyModuleStatus

	compiled *compiled // nil: see problem
	pinned   bool      // it can't become another one unnoticed
	problem  problem

	fresh     bool                  // it was fetched and compiled now
	temporary bool                  // its problem may be gone later
	configMap *types.NamespacedName // that it comes from
}

func (m *moduleState) name() string { return m.kind + " " + nameOf(m.key) }

func nameOf(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}

// problem is why something is not as it should be. The zero problem is none.
type problem struct {
	condition string // that is false for it
	reason    string
	message   string // for the author
}

func (p problem) is() bool { return p.reason != "" }

// policyState is a GCPolicy or ClusterGCPolicy, and what became of it.
type policyState struct {
	object client.Object
	key    types.NamespacedName
	spec   v1alpha1.GCPolicySpec
	status *v1alpha1.GCPolicyStatus

	policy  *policies.Policy
	engine  v1alpha1.Engine
	problem problem
}

// rebuild reads all resources, and puts into force what they say.
func (k *Keeper) rebuild(ctx context.Context) (*build, error) {
	b := &build{}
	if err := k.read(ctx, b); err != nil {
		return nil, err
	}
	modules := map[string]*moduleState{}
	named := map[types.NamespacedName]struct{}{}
	k.loadAll(ctx, b.modules)
	for _, m := range b.modules {
		modules[m.name()] = m
		b.incomplete = b.incomplete || m.temporary
		if m.configMap != nil {
			named[*m.configMap] = struct{}{}
		}
		if m.fresh {
			k.before[m.object.GetUID()] = fetchedBefore{
				generation: m.object.GetGeneration(), compiled: m.compiled, pinned: m.pinned, at: k.options.Now(),
			}
		}
	}
	k.named.Store(&named)
	inUse := map[string]struct{}{}
	all := make([]*policies.Policy, 0, len(b.policies))
	for _, p := range b.policies {
		k.make(ctx, p, modules, inUse)
		all = append(all, p.policy)
	}
	b.set = policies.NewSet(all)
	k.set.Store(b.set)
	k.engines.retire(inUse, modules)
	k.forget(b)
	k.options.OnChange()
	return b, nil
}

// read lists all resources. A kind that is not served has none.
func (k *Keeper) read(ctx context.Context, b *build) error {
	lists := []struct {
		kind string
		list client.ObjectList
		add  func(client.Object)
	}{
		{"PolicyModule", &v1alpha1.PolicyModuleList{}, func(o client.Object) {
			m := o.(*v1alpha1.PolicyModule)
			b.modules = append(b.modules, &moduleState{object: m, kind: "PolicyModule", key: client.ObjectKeyFromObject(m), spec: m.Spec, status: &m.Status})
		}},
		{"ClusterPolicyModule", &v1alpha1.ClusterPolicyModuleList{}, func(o client.Object) {
			m := o.(*v1alpha1.ClusterPolicyModule)
			b.modules = append(b.modules, &moduleState{object: m, kind: "ClusterPolicyModule", key: client.ObjectKeyFromObject(m), spec: m.Spec, status: &m.Status})
		}},
		{"GCPolicy", &v1alpha1.GCPolicyList{}, func(o client.Object) {
			p := o.(*v1alpha1.GCPolicy)
			b.policies = append(b.policies, &policyState{object: p, key: client.ObjectKeyFromObject(p), spec: p.Spec, status: &p.Status})
		}},
		{"ClusterGCPolicy", &v1alpha1.ClusterGCPolicyList{}, func(o client.Object) {
			p := o.(*v1alpha1.ClusterGCPolicy)
			b.policies = append(b.policies, &policyState{object: p, key: client.ObjectKeyFromObject(p), spec: p.Spec, status: &p.Status})
		}},
	}
	for _, l := range lists {
		if err := k.list(ctx, l.kind, l.list, l.add); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) list(ctx context.Context, kind string, list client.ObjectList, add func(client.Object)) error {
	absent, err := k.options.Absent(ctx, schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: kind})
	if err != nil || absent {
		return err
	}
	if err := k.client.List(ctx, list); err != nil {
		return fmt.Errorf("list %s: %w", kind, err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list %s: %w", kind, err)
	}
	for _, item := range items {
		add(item.(client.Object))
	}
	return nil
}

// make makes a policy of its resource. Whatever is wrong with it, it governs what
// it names, and is not ready.
func (k *Keeper) make(ctx context.Context, s *policyState, modules map[string]*moduleState, inUse map[string]struct{}) {
	p := &policies.Policy{
		Namespace: s.key.Namespace, Name: s.key.Name, Generation: s.object.GetGeneration(),
		Needs:   policies.Needs(s.spec.Needs),
		Enforce: s.spec.Mode == v1alpha1.ModeEnforce,
		OnFault: policies.OnFault(s.spec.OnFault), Override: s.spec.Explicit == v1alpha1.ExplicitOverride,
		Priority: s.spec.Priority, Overridable: s.spec.Overridable,
		Hooks: []hostabi.Hook{hostabi.HookCollect, hostabi.HookPropagate}, Unsure: true,
	}
	s.policy = p
	p.Hooks = s.wanted(p.Hooks)
	for _, r := range s.spec.Resources {
		p.Rules = append(p.Rules, policies.Rule{Groups: r.APIGroups, Resources: r.Resources})
	}
	if s.spec.Settings != nil {
		p.Settings = s.spec.Settings.Raw
	}
	s.grant()
	err := k.select_(s)
	switch {
	case err != nil:
		s.refuse(v1alpha1.ConditionAccepted, "Invalid", err.Error())
		p.Namespaces, p.Objects, p.Matches = nil, nil, nil // all may be meant
	case s.spec.Fixed != nil:
		s.fix()
	case s.spec.Module != nil:
		k.assign(ctx, s, modules, inUse)
	default:
		s.refuse(v1alpha1.ConditionAccepted, "Invalid", "write exactly one of fixed and module")
	}
	if s.problem.is() {
		p.Asker, p.NotReady = nil, s.problem.message
	}
}

// refuse notes what is wrong; the first thing counts.
func (s *policyState) refuse(condition, reason, message string) {
	if !s.problem.is() {
		s.problem = problem{condition, reason, message}
	}
}

// grant says what the policy may read, and as whom.
func (s *policyState) grant() {
	if a := s.spec.ServiceAccount; a != nil {
		s.policy.Account = policies.Account{Namespace: a.Namespace, Name: a.Name}
		if s.key.Namespace != "" {
			s.policy.Account.Namespace = s.key.Namespace
		}
	}
	if s.spec.Grants == nil {
		return
	}
	for _, g := range s.spec.Grants.Read {
		r := policies.Reads{Rule: policies.Rule{Groups: g.APIGroups, Resources: g.Resources}, Namespaces: g.Namespaces}
		if s.key.Namespace != "" {
			r.Namespaces = []string{s.key.Namespace}
		}
		s.policy.Reads = append(s.policy.Reads, r)
	}
}

// select_ compiles what tells which objects are governed.
func (k *Keeper) select_(s *policyState) error {
	for _, selector := range []struct {
		field string
		from  *metav1.LabelSelector
		to    *labels.Selector
	}{
		{"namespaceSelector", s.spec.NamespaceSelector, &s.policy.Namespaces},
		{"objectSelector", s.spec.ObjectSelector, &s.policy.Objects},
	} {
		if selector.from == nil {
			continue
		}
		compiled, err := metav1.LabelSelectorAsSelector(selector.from)
		if err != nil {
			return fmt.Errorf("%s can't be read: %w", selector.field, err)
		}
		*selector.to = compiled
	}
	conditions, err := compileConditions(k.cel, s.spec.MatchConditions)
	if err != nil {
		return err
	}
	s.policy.Matches = match(conditions)
	return nil
}

// fix gives the policy its fixed verdicts.
func (s *policyState) fix() {
	s.engine = v1alpha1.EngineFixed
	verdicts := map[hostabi.Hook][]byte{}
	for hook, v := range map[hostabi.Hook]*v1alpha1.FixedVerdict{
		hostabi.HookCollect: s.spec.Fixed.Collect, hostabi.HookPropagate: s.spec.Fixed.Propagate,
	} {
		if v == nil {
			continue
		}
		data, err := json.Marshal(v)
		if err != nil {
			s.refuse(v1alpha1.ConditionAccepted, "Invalid", "fixed: "+err.Error())
			return
		}
		verdicts[hook] = data
	}
	answers, err := fixed.New(s.policy.String(), verdicts)
	if err != nil {
		s.refuse(v1alpha1.ConditionAccepted, "Invalid", "fixed: "+err.Error())
		return
	}
	s.policy.Hooks, s.policy.Unsure = slices.Sorted(maps.Keys(verdicts)), false
	s.policy.Asker = fixedAsker{answers}
}

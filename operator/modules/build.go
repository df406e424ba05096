package modules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies"
)

// build is what one reading of all resources came to.
type build struct {
	set        *policies.Set
	modules    []*moduleState
	policies   []*policyState
	finalizers []*finalizerState

	state string // see Keeper.UpTo
	held  map[Place]int

	took time.Duration // to make it of what was read
}

// moduleState is a PolicyModule or ClusterPolicyModule, and what became of it.
type moduleState struct {
	object client.Object
	kind   string
	key    types.NamespacedName
	spec   v1alpha1.PolicyModuleSpec
	status *v1alpha1.PolicyModuleStatus

	compiled *modulestore.Module // nil: see problem
	pinned   bool                // its source can't have other content later
	given    bool                // its content comes from Options.Given, and pins are about others
	problem  problem
	loading  time.Time // since when it has been loading; zero: it has not

	hostError bool // the problem is not the module's, nor its source's
}

func (m *moduleState) name() string { return m.ref().String() }

func (m *moduleState) ref() modulestore.Ref {
	return modulestore.Ref{Namespace: m.key.Namespace, Name: m.key.Name}
}

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

// asking is a resource that has something asked, a policy or a finalizer, and what
// became of it.
type asking struct {
	object client.Object
	kind   string
	key    types.NamespacedName

	selection
	policy  *policies.Policy
	engine  v1alpha1.Engine
	problem problem
	loading time.Time // since when its module has been loading; zero: its problem is another

	hostError bool // the problem is not its module's
}

// selection is what the specs of those resources say of the objects that they are
// for.
type selection struct {
	resources  []v1alpha1.ResourceRule
	namespaces *metav1.LabelSelector
	objects    *metav1.LabelSelector
	conditions []v1alpha1.MatchCondition
}

// policyState is a GCPolicy or ClusterGCPolicy.
type policyState struct {
	asking
	spec   v1alpha1.GCPolicySpec
	status *v1alpha1.GCPolicyStatus
}

func newPolicyState(o client.Object, kind string, spec v1alpha1.GCPolicySpec, status *v1alpha1.GCPolicyStatus) *policyState {
	return &policyState{
		asking: asking{object: o, kind: kind, key: client.ObjectKeyFromObject(o), selection: selection{
			spec.Resources, spec.NamespaceSelector, spec.ObjectSelector, spec.MatchConditions,
		}},
		spec: spec, status: status,
	}
}

// rebuild reads all resources, and puts into force what they say.
func (k *Keeper) rebuild(ctx context.Context) (*build, error) {
	b, behind := &build{}, k.lags()
	if err := k.read(ctx, b); err != nil {
		return nil, err
	}
	b.state = stateOf(b)
	k.apply(b)
	k.caughtUp(b, behind)
	k.options.OnChange()
	return b, nil
}

// again is another build of the same resources, whose modules are as they are now. The
// resources are shared: they carry the status that was written last.
func (k *Keeper) again(last *build) *build {
	b := &build{state: last.state}
	for _, m := range last.modules {
		b.modules = append(b.modules, &moduleState{object: m.object, kind: m.kind, key: m.key, spec: m.spec, status: m.status})
	}
	for _, p := range last.policies {
		b.policies = append(b.policies, newPolicyState(p.object, p.kind, p.spec, p.status))
	}
	for _, f := range last.finalizers {
		b.finalizers = append(b.finalizers, newFinalizerState(f.object, f.kind, f.spec, f.status))
	}
	k.apply(b)
	if !sameEvaluated(last, b) {
		k.options.OnChange() // which has many objects looked at again
	}
	return b
}

// apply puts into force what a build's resources say. It waits for no module: each policy
// and finalizer is as far as its own module is.
func (k *Keeper) apply(b *build) {
	began := time.Now()
	modules, uses := k.modules(b), k.store.NewUses()
	defer uses.Commit()
	all := make([]*policies.Policy, 0, len(b.policies))
	for _, p := range b.policies {
		k.make(p, modules, uses)
		all = append(all, p.policy)
	}
	b.set = policies.NewSet(all)
	k.set.Store(b.set)
	served := k.makeFinalizers(b, modules, uses)
	k.finalizers.Store(&served)
	k.placeFor(b)
	b.took = time.Since(began)
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
			b.policies = append(b.policies, newPolicyState(p, "GCPolicy", p.Spec, &p.Status))
		}},
		{"ClusterGCPolicy", &v1alpha1.ClusterGCPolicyList{}, func(o client.Object) {
			p := o.(*v1alpha1.ClusterGCPolicy)
			b.policies = append(b.policies, newPolicyState(p, "ClusterGCPolicy", p.Spec, &p.Status))
		}},
		{"Finalizer", &v1alpha1.FinalizerList{}, func(o client.Object) {
			f := o.(*v1alpha1.Finalizer)
			b.finalizers = append(b.finalizers, newFinalizerState(f, "Finalizer", f.Spec, &f.Status))
		}},
		{"ClusterFinalizer", &v1alpha1.ClusterFinalizerList{}, func(o client.Object) {
			f := o.(*v1alpha1.ClusterFinalizer)
			b.finalizers = append(b.finalizers, newFinalizerState(f, "ClusterFinalizer", f.Spec, &f.Status))
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
	if err := k.source.List(ctx, list); err != nil {
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
func (k *Keeper) make(s *policyState, modules map[string]*moduleState, uses *modulestore.Uses) {
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
	if s.spec.Settings != nil {
		p.Settings = s.spec.Settings.Raw
	}
	s.grant()
	switch {
	case !k.select_(&s.asking):
	case s.spec.Fixed != nil:
		s.fix()
	case s.spec.Module != nil:
		k.assign(s, modules, uses)
	default:
		s.refuse(v1alpha1.ConditionAccepted, "Invalid", "write exactly one of fixed and module")
	}
	if s.problem.is() {
		p.Asker, p.NotReady = nil, s.problem.message
	}
	p.Loading = !s.loading.IsZero()
	if p.Loading || s.hostError {
		p.OnFault = policies.OnFaultHold // onFault is for modules that fail, not for those that are still loading or that the host fails
	}
}

// refuse notes what is wrong; the first thing counts.
func (s *asking) refuse(condition, reason, message string) {
	if !s.problem.is() {
		s.problem = problem{condition, reason, message}
	}
}

// wait notes that the resource can't be evaluated yet, since its module is loading.
func (s *asking) wait(since time.Time, message string) {
	if !s.problem.is() {
		s.loading = since
		s.refuse(v1alpha1.ConditionModuleReady, "Loading", message)
	}
}

// grant says what the policy may read, and as whom.
func (s *policyState) grant() {
	s.policy.Account = s.account(s.spec.ServiceAccount)
	if s.spec.Grants != nil {
		s.policy.Reads = s.reads(s.spec.Grants.Read)
	}
}

// account is whom a resource has act for it.
func (s *asking) account(ref *v1alpha1.ServiceAccountReference) (a policies.Account) {
	if ref == nil {
		return a
	}
	a = policies.Account{Namespace: ref.Namespace, Name: ref.Name}
	if s.key.Namespace != "" {
		a.Namespace = s.key.Namespace
	}
	return a
}

func (s *asking) reads(grants []v1alpha1.ReadGrant) []policies.Reads {
	var list []policies.Reads
	for _, g := range grants {
		list = append(list, policies.Reads{Rule: policies.Rule{Groups: g.APIGroups, Resources: g.Resources}, Namespaces: s.within(g.Namespaces)})
	}
	return list
}

// within are the namespaces that a grant is for: a resource of a namespace has that
// alone.
func (s *asking) within(namespaces []string) []string {
	if s.key.Namespace != "" {
		return []string{s.key.Namespace}
	}
	return namespaces
}

// select_ compiles what tells which objects are governed, and reports whether it
// makes sense. Where it does not, all may be meant.
func (k *Keeper) select_(s *asking) bool {
	for _, r := range s.resources {
		s.policy.Rules = append(s.policy.Rules, policies.Rule{Groups: r.APIGroups, Resources: r.Resources})
	}
	err := k.compileSelection(s)
	if err != nil {
		s.refuse(v1alpha1.ConditionAccepted, "Invalid", err.Error())
		s.policy.Namespaces, s.policy.Objects, s.policy.Matches = nil, nil, nil
		// The API server would refuse them too, with all that is told it of other policies.
		s.namespaces, s.objects = nil, nil
	}
	return err == nil
}

// errNoReader is for whoever wrote conditions on objects that nobody may read.
var errNoReader = errors.New("matchConditions look at objects, which are read as a service account of this namespace, and none is named: " +
	"write serviceAccount: {name: …}, of one that may get them, or leave matchConditions out")

func (k *Keeper) compileSelection(s *asking) error {
	for _, selector := range []struct {
		field string
		from  *metav1.LabelSelector
		to    *labels.Selector
	}{
		{"namespaceSelector", s.namespaces, &s.policy.Namespaces},
		{"objectSelector", s.objects, &s.policy.Objects},
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
	if s.key.Namespace != "" && len(s.conditions) != 0 && s.policy.Account == (policies.Account{}) {
		return errNoReader // CRDs of a release before the rule let it pass
	}
	conditions, err := compileConditions(k.cel, s.conditions)
	if err != nil {
		return err
	}
	s.policy.Matches = match(conditions)
	return nil
}

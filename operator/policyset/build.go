package policyset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/selectors"
	"github.com/gleaner-dev/gleaner/policies"
)

// Rules are what the operator allows resources to say.
type Rules struct {
	// Networks are those beyond the public ones to which Finalizers of namespaces may
	// grant requests: requests are sent from the operator's network, which may reach what
	// the author of a Finalizer could not.
	Networks []netip.Prefix

	// CheckGrants returns what is wrong with grants.
	CheckGrants func(policies.Grants) error

	// CheckRecipients returns what is wrong with the recipients of an archive policy. Nil:
	// they are not checked.
	CheckRecipients func([]string) error

	// Overridden reports whether the content of a module is not what its resource says;
	// may be nil. The module is named as Module.String does.
	Overridden func(module string) bool
}

// ModuleStates are the states of modules at one moment.
type ModuleStates interface {
	// Module returns the state of a module; false if there is none of this name. See
	// modulestore.Store.Get for the digest.
	Module(ref modulestore.Ref, digest string) (modulestore.State, bool)

	// Use returns the state of a module's use by a policy or finalizer, which begins with
	// the first call.
	Use(u modulestore.Use) modulestore.UseState
}

// Builder builds snapshots. Create it with NewBuilder.
type Builder struct {
	rules    Rules
	archiver Archiver
	cel      *cel.Env
}

// NewBuilder returns a Builder. Without an Archiver, nothing is archived, and the finalizers
// of archive policies are added to no object.
func NewBuilder(r Rules, a Archiver) (*Builder, error) {
	env, err := celEnvironment()
	if err != nil {
		return nil, err
	}
	return &Builder{rules: r, archiver: a, cel: env}, nil
}

// Build returns the Snapshot of resources, without a Revision. A resource with a problem
// is part of it: it governs what it selects, and is not ready.
func (b *Builder) Build(r Resources, states ModuleStates) *Snapshot {
	s := &Snapshot{
		Fingerprint: r.fingerprint(), Modules: r.modules(), Policies: r.policies(), Finalizers: r.finalizers(), Archives: r.archives(),
		Retentions: r.retentions(),
	}
	modules := map[string]*Module{}
	for _, m := range s.Modules {
		m.setState(states.Module(m.Ref(), m.Spec.SHA256))
		m.Overridden = b.rules.Overridden != nil && b.rules.Overridden(m.String())
		modules[m.String()] = m
	}
	all := make([]*policies.Policy, 0, len(s.Policies))
	for _, p := range s.Policies {
		b.buildPolicy(p, modules, states)
		all = append(all, p.Policy)
	}
	s.Set = policies.NewSet(all)
	s.serving = b.buildFinalizers(s.Finalizers, modules, states)
	b.buildArchives(s)
	for _, retention := range s.Retentions {
		b.buildRetention(retention)
	}
	s.Selectors = selectors.New(s.Set, s.archiveSet)
	return s
}

// account returns the service account that a resource acts as.
func (d *Declaration) account(ref *v1alpha1.ServiceAccountReference) (a policies.ServiceAccount) {
	if ref == nil {
		return a
	}
	a = policies.ServiceAccount{Namespace: ref.Namespace, Name: ref.Name}
	if d.Key.Namespace != "" {
		a.Namespace = d.Key.Namespace
	}
	return a
}

func (d *Declaration) reads(grants []v1alpha1.ReadGrant) []policies.ReadRule {
	var list []policies.ReadRule
	for _, g := range grants {
		list = append(list, policies.ReadRule{Rule: policies.Rule{Groups: g.APIGroups, Resources: g.Resources}, Namespaces: d.within(g.Namespaces)})
	}
	return list
}

// within returns the namespaces of a grant: a namespaced resource has its own only.
func (d *Declaration) within(namespaces []string) []string {
	if d.Key.Namespace != "" {
		return []string{d.Key.Namespace}
	}
	return namespaces
}

// compileSelection sets what the resource selects, and reports whether that is valid. If
// it is not, everything may be selected.
func (b *Builder) compileSelection(d *Declaration) bool {
	for _, r := range d.Resources {
		d.Policy.Rules = append(d.Policy.Rules, policies.Rule{Groups: r.APIGroups, Resources: r.Resources})
	}
	err := b.compileSelectors(d)
	d.InvalidSelection = err != nil
	if err != nil {
		d.refuse(v1alpha1.ConditionAccepted, "Invalid", err.Error())
		d.Policy.NamespaceSelector, d.Policy.ObjectSelector, d.Policy.Matches = nil, nil, nil
		// In an admission configuration, the API server would reject them, and with them
		// those of all other policies.
		d.NamespaceSelector, d.ObjectSelector = nil, nil
	}
	return err == nil
}

var errNoServiceAccount = errors.New("matchConditions are evaluated on objects, which are read as a service account of this namespace, and none is named: " +
	"write serviceAccount: {name: …}, of one that may get them, or remove matchConditions")

func (b *Builder) compileSelectors(d *Declaration) error {
	for _, selector := range []struct {
		field string
		from  *metav1.LabelSelector
		to    *labels.Selector
	}{
		{"namespaceSelector", d.NamespaceSelector, &d.Policy.NamespaceSelector},
		{"objectSelector", d.ObjectSelector, &d.Policy.ObjectSelector},
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
	if d.Key.Namespace != "" && len(d.MatchConditions) != 0 && d.Policy.ServiceAccount == (policies.ServiceAccount{}) {
		return errNoServiceAccount // it was stored before the CRD had this rule
	}
	conditions, err := compileConditions(b.cel, d.MatchConditions)
	if err != nil {
		return err
	}
	d.Policy.Matches = match(conditions)
	return nil
}

// moduleName returns the name of a module that a resource refers to.
func (d *Declaration) moduleName(ref v1alpha1.ModuleReference) string {
	kind := ref.Kind
	if kind == "" {
		kind = map[bool]string{true: "ClusterPolicyModule", false: "PolicyModule"}[d.Key.Namespace == ""]
	}
	if kind == "PolicyModule" && d.Key.Namespace != "" {
		return kind + " " + types.NamespacedName{Namespace: d.Key.Namespace, Name: ref.Name}.String()
	}
	return kind + " " + ref.Name
}

// module returns the module that a resource refers to; nil if it must not be evaluated,
// and then nothing of it counts, not even its hooks.
func (d *Declaration) module(ref v1alpha1.ModuleReference, grants bool, modules map[string]*Module) *Module {
	name := d.moduleName(ref)
	d.Policy.Module = name
	m, ok := modules[name]
	switch {
	case !ok:
		d.refuse(v1alpha1.ConditionModuleReady, "NotFound", fmt.Sprintf("there is no %s: apply it, or name another in module", name))
		return nil
	case !m.Loading.IsZero():
		d.wait(m.Loading, fmt.Sprintf("%s: %s", name, m.Problem.Message))
		return nil
	case m.Content == nil:
		d.HostError = m.HostError
		d.refuse(v1alpha1.ConditionModuleReady, m.Problem.Reason, fmt.Sprintf("%s: %s", name, m.Problem.Message))
		return nil
	}
	d.Engine, d.Policy.Digest = m.Content.Engine, m.Content.Digest
	if m.Overridden {
		return m
	}
	if wrong := pinOf(ref, d.Policy.Enforce, grants).check(name, m.Content.Digest); !wrong.IsZero() {
		d.refuse(wrong.Condition, wrong.Reason, wrong.Message)
		return nil
	}
	return m
}

// start has the module started for the resource and its settings validated.
func (d *Declaration) start(m *Module, states ModuleStates) {
	state := states.Use(modulestore.Use{
		UID: d.Object.GetUID(), Policy: d.Policy.String(), Module: *m.Content, Limits: limitsOf(m.Spec.Limits),
		Settings: hostabi.Policy{Name: d.Key.Name, Namespace: d.Key.Namespace, Settings: d.Policy.Settings},
	})
	switch {
	case state.Phase == modulestore.Ready:
		d.Policy.Evaluator = state.Evaluator
	case state.Phase == modulestore.Failed:
		d.notStarted(m, state)
	case state.Step == modulestore.Validating:
		d.wait(state.Since, fmt.Sprintf("%s: its settings are being validated", m))
	default:
		d.wait(state.Since, fmt.Sprintf("%s: it is being started", m))
	}
}

// notStarted records why the module was not started for the resource.
func (d *Declaration) notStarted(m *Module, state modulestore.UseState) {
	fault, settings := (*policies.Fault)(nil), (*modulestore.SettingsError)(nil)
	d.HostError = !errors.As(state.Err, &settings) && !errors.As(state.Err, &fault)
	switch {
	case settings != nil:
		d.refuse(v1alpha1.ConditionAccepted, "SettingsRefused", "the module refuses settings: "+settings.Reason)
	case state.Step == modulestore.Validating:
		d.refuse(v1alpha1.ConditionModuleReady, "ValidateFailed", "settings could not be validated: "+state.Err.Error())
	case fault != nil:
		d.refuse(v1alpha1.ConditionModuleReady, string(fault.Kind), fmt.Sprintf("%s: %s", m, fault.Message))
	default:
		d.refuse(v1alpha1.ConditionModuleReady, "NotStarted", fmt.Sprintf("%s: %s", m, state.Err))
	}
}

func limitsOf(l *v1alpha1.Limits) (limits modulestore.Limits) {
	if l == nil {
		return limits
	}
	if l.Fuel != nil {
		limits.Fuel = *l.Fuel
	}
	if l.Timeout != nil {
		limits.Timeout = l.Timeout.Duration
	}
	if l.Memory != nil {
		limits.Memory = l.Memory.Value()
	}
	return limits
}

// enabled returns the hooks that the spec of a policy does not exclude.
func (p *Policy) enabled(hooks []hostabi.Hook) []hostabi.Hook {
	if len(p.Spec.Hooks) == 0 {
		return hooks
	}
	return slices.DeleteFunc(slices.Clone(hooks), func(h hostabi.Hook) bool {
		return !slices.Contains(p.Spec.Hooks, v1alpha1.PolicyHook(h))
	})
}

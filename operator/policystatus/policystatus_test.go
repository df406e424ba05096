package policystatus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/graceperiod"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
)

// fixture is a Writer whose clock a test sets.
type fixture struct {
	*Writer
	t        *testing.T
	now      time.Time
	snapshot *policyset.Snapshot
}

func settled(t *testing.T, resources ...client.Object) *fixture {
	t.Helper()
	return of(t, policysettest.Settled(t, resources...))
}

func of(t *testing.T, s *policyset.Snapshot) *fixture {
	f := &fixture{t: t, now: time.Now(), snapshot: s}
	f.Writer = NewWriter(Options{
		Observations: NewObservations(func() time.Time { return f.now }),
		Serves:       func(schema.GroupResource) (served, namespaced bool) { return true, true },
		ServesKind:   func(kind schema.GroupKind) bool { return kind.Kind != "Deploy" },
		Events:       record.NewFakeRecorder(10),
	})
	return f
}

// installed is a view in which everything is installed, in primary mode.
func installed() view {
	return view{primary: true, admission: &admission.Status{}, protect: &admission.Status{}, gracePeriods: &admission.Status{}}
}

// status describes a policy.
func (f *fixture) status(name string, v view) *v1alpha1.GCPolicyStatus {
	f.t.Helper()
	p := policysettest.PolicyOf(f.snapshot, name)
	s := policyStatus(p.Object.DeepCopyObject().(client.Object))
	f.describePolicy(f.snapshot, v, p, s)
	return s
}

func (f *fixture) has(list []metav1.Condition, kind string, status metav1.ConditionStatus, reason, text string) {
	f.t.Helper()
	policysettest.HasCondition(f.t, list, kind, status, reason, text)
}

const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown

func TestEnforcing_IsTrueOnceEverythingIsInstalled(t *testing.T) {
	f := settled(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "p"), Spec: policysettest.Orphaning(nil)})
	f.has(f.status("p", installed()).Conditions, v1alpha1.ConditionEnforcing, yes, "Enforcing", "")
	f.has(f.status("p", view{primary: true}).Conditions, v1alpha1.ConditionEnforcing, unknown, "Installing", "")
}

func TestEnforcing_StaysForAWhileWhileItIsNotKnownWhatIsInstalled(t *testing.T) {
	f := settled(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "p"), Spec: policysettest.Orphaning(nil)})
	o := policysettest.PolicyOf(f.snapshot, "p").Object.(*v1alpha1.ClusterGCPolicy)
	meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionEnforcing, Status: yes, Reason: "Enforcing"})
	f.has(f.status("p", view{primary: true, since: time.Now()}).Conditions, v1alpha1.ConditionEnforcing, yes, "Enforcing", "")
	f.has(f.status("p", view{primary: true, since: time.Now().Add(-time.Minute)}).Conditions, v1alpha1.ConditionEnforcing, unknown, "Installing", "")
}

func TestEnforcing_SaysThatHoldsComeLate(t *testing.T) {
	f := settled(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "p"), Spec: policysettest.Orphaning(nil)})
	late := &admission.Status{Failed: admission.Failures{"": admission.ErrNoCertificate}}
	f.has(f.status("p", view{primary: true, admission: late, protect: &admission.Status{}, gracePeriods: &admission.Status{}}).Conditions, v1alpha1.ConditionEnforcing, yes, "HoldsComeLate", "no certificate")
}

func TestEnforcing_SaysThatGracePeriodsAreNotInherited(t *testing.T) {
	spec := policysettest.Orphaning(nil)
	spec.Fixed = &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{Decision: "Foreground", InheritGracePeriod: true}}
	f := settled(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "p"), Spec: spec})
	v := installed()
	v.gracePeriods.Failed = admission.Failures{graceperiod.ConfigurationName: admission.ErrNoCertificate}
	f.has(f.status("p", v).Conditions, v1alpha1.ConditionEnforcing, yes, "GracePeriodNotInherited", "no certificate")
	f.has(f.status("p", installed()).Conditions, v1alpha1.ConditionEnforcing, yes, "Enforcing", "")
}

func TestEnforcing_InCompanionModeDependsOnWhatIsKnownOfTheCollector(t *testing.T) {
	f := settled(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "p"), Spec: policysettest.Keeping(nil, policysettest.ConfigMaps()...)})
	for claim, c := range map[string]struct {
		known  *companion.Status
		status metav1.ConditionStatus
		reason string
	}{
		"nothing is known":              {nil, unknown, "Installing"},
		"all is well":                   {&companion.Status{Presence: companion.Running}, yes, "Enforcing"},
		"the webhook is not installed":  {&companion.Status{Vetoes: admission.ErrNoCertificate}, no, "NotVetoed"},
		"it works as another user":      {&companion.Status{Mismatch: admission.ErrNoCertificate}, no, "NotVetoed"},
		"no canary has shown it yet":    {&companion.Status{Unverified: "not yet"}, no, "Verifying"},
		"a canary has shown that it is": {&companion.Status{Unverified: "it is not called", Final: true}, no, "CollectorNotVerified"},
		"no collector is running":       {&companion.Status{Presence: companion.Missing}, yes, "NoOtherCollector"},
	} {
		t.Run(claim, func(t *testing.T) {
			f.t = t
			f.has(f.status("p", view{admission: &admission.Status{}, protect: &admission.Status{}, gracePeriods: &admission.Status{}, companion: c.known}).Conditions, v1alpha1.ConditionEnforcing, c.status, c.reason, "")
		})
	}
}

func TestEnforcing_IsFalseWhileObjectsAreWithheld(t *testing.T) {
	f := settled(t, &v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta("shop", "p"), Spec: policysettest.Orphaning(&v1alpha1.ServiceAccountReference{Name: "reader"})})
	f.options.Observations.Withheld("GCPolicy shop/p", "forbidden")
	f.has(f.status("p", installed()).Conditions, v1alpha1.ConditionEnforcing, no, "ObjectWithheld", "grant its service account get on what resources names; forbidden")
	f.now = f.now.Add(withheldLife + time.Second) // nobody has been refused since
	f.has(f.status("p", installed()).Conditions, v1alpha1.ConditionEnforcing, yes, "Enforcing", "")
}

func TestEnforcing_SaysThatAPolicyWritesTooMuch(t *testing.T) {
	f := settled(t, policysettest.Module("m", policysettest.KeepText), policysettest.ModulePolicy("p", "m", v1alpha1.OnFaultHold))
	f.options.Observations.Limited("ClusterGCPolicy p")
	f.has(f.status("p", installed()).Conditions, v1alpha1.ConditionEnforcing, yes, "RateLimited", "change its state less often")
	f.now = f.now.Add(withheldLife + time.Second)
	f.has(f.status("p", installed()).Conditions, v1alpha1.ConditionEnforcing, yes, "Enforcing", "")
}

func TestEnforcing_OfAFinalizerIsFalseUntilItsNextAttemptIfObjectsWereWithheld(t *testing.T) {
	const text = "package gleaner\n\nfinalize := {\"decision\": \"Done\"} if input.object.data\n"
	f := settled(t, policysettest.Module("m", text), &v1alpha1.Finalizer{ObjectMeta: policysettest.Meta("shop", "f"), Spec: v1alpha1.FinalizerSpec{
		Resources: policysettest.ConfigMaps(), Module: v1alpha1.ModuleReference{Kind: "ClusterPolicyModule", Name: "m", Digest: policysettest.Digest(text)},
		Mode: v1alpha1.ModeEnforce, ServiceAccount: &v1alpha1.ServiceAccountReference{Name: "reader"},
	}})
	finalizer := f.snapshot.Finalizers[0]
	conditions := func() []metav1.Condition {
		s := &v1alpha1.FinalizerStatus{}
		f.describeFinalizer(installed(), finalizer, Progress{}, s)
		return s.Conditions
	}
	f.options.Observations.Withheld("Finalizer shop/f", "forbidden")
	f.options.Observations.keep(f.snapshot)
	f.now = f.now.Add(finalizer.Finalizer.RetryMax)
	f.has(conditions(), v1alpha1.ConditionEnforcing, no, "ObjectWithheld", "grant its service account get on what resources names; forbidden")
	f.now = f.now.Add(2 * time.Minute)
	f.has(conditions(), v1alpha1.ConditionEnforcing, yes, "Enforcing", "")
}

func TestObservations_OfWhatIsGoneAreForgotten(t *testing.T) {
	f := settled(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "p"), Spec: policysettest.Keeping(nil, policysettest.ConfigMaps()...)})
	o := f.options.Observations
	for _, policy := range []string{"ClusterGCPolicy p", "ClusterGCPolicy gone"} {
		o.Decided(policy, "Delete")
		o.Limited(policy)
	}
	o.keep(f.snapshot)
	if n := o.decisionsOf("ClusterGCPolicy p")["Delete"]; n != 1 || !o.isLimited("ClusterGCPolicy p") {
		t.Errorf("%d decisions of one that exists", n)
	}
	if n := o.decisionsOf("ClusterGCPolicy gone")["Delete"]; n != 0 || o.isLimited("ClusterGCPolicy gone") {
		t.Errorf("%d decisions of one that is gone", n)
	}
}

// loadingOf is a snapshot whose modules are loading.
func loadingOf(t *testing.T, resources ...client.Object) *policyset.Snapshot {
	t.Helper()
	f := policysettest.New(t, nil, resources...)
	changed := f.Publisher.Changed()
	f.Run()
	<-changed
	return f.Publisher.Current()
}

func TestLoading_IsInTheStatus(t *testing.T) {
	f := of(t, loadingOf(t, policysettest.EndlessModule("slow"), policysettest.ModulePolicy("p", "slow", v1alpha1.OnFaultDefault)))
	s := &v1alpha1.PolicyModuleStatus{Digest: "of another module"}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1alpha1.ConditionCompiled, Status: yes, Reason: "Compiled"})
	describeModule(f.snapshot.Modules[0], s)
	f.has(s.Conditions, v1alpha1.ConditionFetched, no, "Loading", "it is being fetched")
	f.has(s.Conditions, v1alpha1.ConditionCompiled, no, "Loading", "")
	if s.Digest != "" || s.Hooks != nil {
		t.Errorf("it says what the module was: %+v", s)
	}
	p := f.status("p", installed())
	f.has(p.Conditions, v1alpha1.ConditionModuleReady, no, "Loading", "it is being fetched; meanwhile the objects that it governs are kept")
	f.has(p.Conditions, v1alpha1.ConditionEnforcing, no, "NotReady", "are kept")
}

func TestLoading_IsNotAnnounced(t *testing.T) {
	at := func(is metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionModuleReady, Status: is, Reason: reason}
	}
	ready, bad, loading := at(yes, "Ready"), at(no, "NotFound"), at(no, "Loading")
	for _, c := range []struct {
		claim       string
		former, now metav1.Condition
		announced   bool
	}{
		{"begins", ready, loading, false},
		{"ends well", loading, ready, false},
		{"ends badly", loading, bad, true},
	} {
		if _, ok := announcement(&c.former, c.now); ok != c.announced {
			t.Errorf("it %s: announced %t, want %t", c.claim, ok, c.announced)
		}
	}
}

// The hooks of a policy are not known while its module is loading, and so neither is
// whether others come after it.
func TestLoading_LeavesOverlapsAsTheyWere(t *testing.T) {
	last := &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "z"), Spec: policysettest.Keeping(nil, policysettest.ConfigMaps()...)}
	f := of(t, loadingOf(t, policysettest.EndlessModule("slow"), policysettest.ModulePolicy("a", "slow", v1alpha1.OnFaultHold), last))
	o := policysettest.PolicyOf(f.snapshot, "z").Object.(*v1alpha1.ClusterGCPolicy)
	meta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionOverlapping, Status: no, Reason: "First"})
	f.has(f.status("z", installed()).Conditions, v1alpha1.ConditionOverlapping, no, "First", "")
}

// What a policy in Monitor decides changes nothing, so it takes precedence over nothing.
func TestOverlapping_MentionsOnlyPoliciesThatTakePrecedenceInEffect(t *testing.T) {
	tier := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"tier": value}}
	}
	missing := &v1alpha1.ModuleReference{Name: "missing", Digest: policysettest.Digest(policysettest.KeepText)}
	for claim, c := range map[string]struct {
		change func(*v1alpha1.GCPolicySpec)
		first  bool // the other one takes precedence
	}{
		"one that enforces":                {func(*v1alpha1.GCPolicySpec) {}, true},
		"not one in Monitor":               {func(s *v1alpha1.GCPolicySpec) { s.Mode = v1alpha1.ModeMonitor }, false},
		"one that selects the same labels": {func(s *v1alpha1.GCPolicySpec) { s.ObjectSelector = tier("data") }, true},
		"not one that selects others":      {func(s *v1alpha1.GCPolicySpec) { s.ObjectSelector = tier("web") }, false},
		"one without the module that it needs, which keeps what it governs": {func(s *v1alpha1.GCPolicySpec) {
			s.Fixed, s.Module = nil, missing
		}, true},
		"not one without its module that leaves it to the next": {func(s *v1alpha1.GCPolicySpec) {
			s.Fixed, s.Module, s.OnFault = nil, missing, v1alpha1.OnFaultDefault
		}, false},
	} {
		t.Run(claim, func(t *testing.T) {
			other, mine := policysettest.Keeping(nil, policysettest.ConfigMaps()...), policysettest.Keeping(tier("data"), policysettest.ConfigMaps()...)
			other.Priority = 9
			c.change(&other)
			f := settled(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "other"), Spec: other},
				&v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "mine"), Spec: mine})
			conditions := f.status("mine", installed()).Conditions
			if c.first {
				f.has(conditions, v1alpha1.ConditionOverlapping, yes, "OthersFirst", "ClusterGCPolicy other")
				return
			}
			f.has(conditions, v1alpha1.ConditionOverlapping, no, "First", "")
			if slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return strings.Contains(c.Message, "ClusterGCPolicy other") }) {
				t.Error("it is mentioned")
			}
		})
	}
}

// The response to a status that is written has the spec of that moment, which may be a
// later generation than is in force.
func TestWrite_StatusIsOfTheSpecThatIsInForce(t *testing.T) {
	read := &v1alpha1.GCPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u", Generation: 1},
		Spec: policysettest.Keeping(nil, policysettest.ConfigMaps()...)}
	changed := read.DeepCopy()
	changed.Generation, changed.Spec.Mode = 2, v1alpha1.ModeMonitor
	api := fake.NewClientBuilder().WithScheme(policysettest.Scheme(t)).WithStatusSubresource(changed).WithObjects(changed).Build()
	w := NewWriter(Options{Client: api, Events: record.NewFakeRecorder(10)})

	spec := read.Spec.DeepCopy()
	for _, held := range []int64{1, 2} {
		w.write(t.Context(), read, "GCPolicy", func(o client.Object) {
			s := policyStatus(o)
			s.ObservedGeneration, s.Held = o.GetGeneration(), held
		})
	}
	if diff := cmp.Diff(*spec, read.Spec); diff != "" || read.Generation != 1 || read.Status.Held != 0 {
		t.Errorf("what is in force was changed to generation %d, %+v (-want +got):\n%s", read.Generation, read.Status, diff)
	}
	live := &v1alpha1.GCPolicy{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(read), live); err != nil {
		t.Fatal(err)
	}
	if live.Status.ObservedGeneration != 1 || live.Status.Held != 2 || live.Spec.Mode != v1alpha1.ModeMonitor {
		t.Errorf("written: %+v", live.Status)
	}
}

// If a list was read before the last write, its status is outdated, even if it equals the status to write.
func TestWrite_AfterAListThatWasReadBefore_IsNotLost(t *testing.T) {
	made := &v1alpha1.GCPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u", Generation: 1},
		Spec: policysettest.Keeping(nil, policysettest.ConfigMaps()...), Status: v1alpha1.GCPolicyStatus{Held: 1}}
	var fails error
	api := fake.NewClientBuilder().WithScheme(policysettest.Scheme(t)).WithStatusSubresource(made).WithObjects(made).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, with ...client.SubResourcePatchOption) error {
			if fails != nil {
				return fails
			}
			return c.SubResource(name).Patch(ctx, o, patch, with...)
		}}).Build()
	w := NewWriter(Options{Client: api, Events: record.NewFakeRecorder(10)})
	read := func() *v1alpha1.GCPolicy {
		o := &v1alpha1.GCPolicy{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(made), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	write := func(of *v1alpha1.GCPolicy, held int64, reason string) {
		w.write(t.Context(), of, "GCPolicy", func(o client.Object) { policyStatus(o).Held, policyStatus(o).Reason = held, reason })
	}
	first, second, third := read(), read(), read()
	write(first, 2, "Loading")
	write(second, 1, "")
	if live := read(); live.Status.Held != 1 || live.Status.Reason != "" {
		t.Errorf("after a list from before: %+v", live.Status)
	}

	// Also if a write failed meanwhile.
	write(second, 3, "Loading")
	fails = errors.New("the server is down")
	write(second, 4, "")
	fails = nil
	write(third, 1, "")
	if live := read(); live.Status.Held != 1 || live.Status.Reason != "" {
		t.Errorf("after a failed write, and a list from before: %+v", live.Status)
	}

	// A later list has what others have written.
	other := read()
	other.Status.Held = 7
	if err := api.Status().Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	write(read(), 1, "")
	if live := read(); live.Status.Held != 1 {
		t.Errorf("after a write of another client: %+v", live.Status)
	}
}

func TestSummary_IsTheReasonOfWhatIsWrong(t *testing.T) {
	is := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	for claim, c := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"nothing is said yet": {nil, ""},
		"all is well":         {[]metav1.Condition{is("Accepted", yes, "Accepted"), is("ModuleReady", yes, "Ready"), is("Enforcing", yes, "Enforcing")}, ""},
		"Monitor is wanted":   {[]metav1.Condition{is("Accepted", yes, "Accepted"), is("Enforcing", no, "Monitor")}, ""},
		"the cause comes before what follows from it": {
			[]metav1.Condition{is("Enforcing", no, "NotReady"), is("ModuleReady", no, "DigestMismatch"), is("Accepted", yes, "Accepted")}, "DigestMismatch",
		},
		"it is not enforced":             {[]metav1.Condition{is("ModuleReady", yes, "Ready"), is("Enforcing", no, "ObjectWithheld")}, "ObjectWithheld"},
		"there is no other collector":    {[]metav1.Condition{is("Enforcing", yes, reasonNoCollector)}, reasonNoCollector},
		"a module could not be fetched":  {[]metav1.Condition{is("Compiled", no, "NotFetched"), is("Fetched", no, "NotFound")}, "NotFound"},
		"nobody overlaps, which is well": {[]metav1.Condition{is("Overlapping", no, "First"), is("Attached", no, "NotWanted")}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			if got := summary(c.conditions); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	stuck := &v1alpha1.FinalizerStatus{StalledObjects: []v1alpha1.StalledObject{{Reason: "Blocked"}, {Reason: "Failed"}}}
	if got := finalizerSummary(stuck); got != "Blocked" {
		t.Errorf("of a finalizer with objects that are stuck: %q", got)
	}
}

package whose

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/finalize"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
)

var deleted = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func secret(change func(*metav1.ObjectMeta)) Object {
	o := &metav1.ObjectMeta{Namespace: "shop", Name: "keys", UID: "uid", DeletionTimestamp: &deleted, Labels: map[string]string{"a": "b"}}
	if change != nil {
		change(o)
	}
	return Object{Object: o, Kind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Resource: schema.GroupResource{Resource: "secrets"}}
}

func policy(name string, change func(*Policy)) Policy {
	p := Policy{Kind: v1alpha1.KindClusterGCPolicy, ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Resources = []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{"secrets"}}}
	p.Spec.Mode, p.Spec.Fixed = v1alpha1.ModeEnforce, &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{}}
	if change != nil {
		change(&p)
	}
	return p
}

func TestAHoldIsOfThePoliciesThatMayWantIt(t *testing.T) {
	for claim, c := range map[string]struct {
		change func(*Policy)
		owner  string
	}{
		"the policy that selects it": {nil, "Gleaner, for ClusterGCPolicy p"},
		"not one that only watches":  {func(p *Policy) { p.Spec.Mode = v1alpha1.ModeMonitor }, "Gleaner, for no policy any more"},
		"not one of other resources": {func(p *Policy) { p.Spec.Resources[0].Resources = []string{"pods"} }, "Gleaner, for no policy any more"},
		"not one of other labels": {func(p *Policy) {
			p.Spec.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "c"}}
		}, "Gleaner, for no policy any more"},
		"not one of other namespaces": {func(p *Policy) {
			p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "other"}}
		}, "Gleaner, for no policy any more"},
		"not one of another namespace": {func(p *Policy) { p.Namespace = "other" }, "Gleaner, for no policy any more"},
		"not one that only collects": {func(p *Policy) {
			p.Spec.Fixed = &v1alpha1.FixedVerdicts{Collect: &v1alpha1.FixedVerdict{}}
		}, "Gleaner, for no policy any more"},
		"one whose module is not known yet": {func(p *Policy) {
			p.Spec.Fixed, p.Spec.Module = nil, &v1alpha1.ModuleReference{Name: "m"}
		}, "Gleaner, for ClusterGCPolicy p"},
		"not one whose module does not answer that": {func(p *Policy) {
			p.Spec.Fixed, p.Spec.Module, p.Status.Hooks = nil, &v1alpha1.ModuleReference{Name: "m"}, []string{"collect"}
		}, "Gleaner, for no policy any more"},
	} {
		t.Run(claim, func(t *testing.T) {
			b := &Book{Policies: []Policy{policy("p", c.change)}, labels: map[string]labels.Set{"shop": {"team": "shop"}}}
			if h := b.Of(secret(nil), graph.Hold); h.Kind != Hold || h.Owner != c.owner || h.Do == "" {
				t.Errorf("%+v", h)
			}
		})
	}
}

func TestWhatCouldNotBeReadMayHoldAnything(t *testing.T) {
	b := &Book{Unread: []string{"GCPolicies: forbidden"}}
	if h := b.Of(secret(nil), graph.Hold); h.Owner != "Gleaner, for a policy that could not be read" {
		t.Errorf("%+v", h)
	}
}

func serving(name, entry string) Serving {
	s := Serving{Kind: v1alpha1.KindClusterFinalizer, ObjectMeta: metav1.ObjectMeta{Name: name}, Entry: entry}
	s.Spec.Deadline = &metav1.Duration{Duration: time.Hour}
	return s
}

func TestAServedFinalizerTellsWhatItsStatusTellsOfTheObject(t *testing.T) {
	since := metav1.NewTime(deleted.Add(time.Second))
	retry, deadline := metav1.NewTime(deleted.Add(time.Minute)), metav1.NewTime(deleted.Add(time.Hour))
	s := serving("bucket", "example.com/bucket")
	s.Status.Stuck = []v1alpha1.StuckObject{
		{UID: "other", Reason: "Fault", Message: "another"},
		{UID: "uid", Reason: "Unreachable", Message: "no answer", Since: since, NextRetry: &retry, Deadline: &deadline},
	}
	got := (&Book{Finalizers: []Serving{s}}).Of(secret(nil), "example.com/bucket")
	want := Holder{
		Finalizer: "example.com/bucket", Kind: Served, Owner: "ClusterFinalizer bucket", Waits: "its module to be done",
		Reason: "FinalizerTroubled", Error: "no answer", Since: &since, NextRetry: &retry, Deadline: &deadline, Do: got.Do,
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Do == "" {
		t.Error(diff)
	}
}

func TestARetryWhoseTimeHasComeIsDue(t *testing.T) {
	retry, since := metav1.NewTime(deleted.Add(time.Minute)), metav1.NewTime(deleted.Add(time.Second))
	s := serving("bucket", "example.com/bucket")
	s.Status.Stuck = []v1alpha1.StuckObject{{UID: "uid", Reason: "Blocked", Message: "no answer", NextRetry: &retry, Since: since}}
	for at, due := range map[time.Time]bool{retry.Add(-time.Second): false, retry.Time: true, retry.Add(time.Hour): true} {
		h := (&Book{Finalizers: []Serving{s}, At: at}).Of(secret(nil), "example.com/bucket")
		if h.RetryDue != due || (h.NextRetry == nil) != due || !h.Since.Equal(&since) {
			t.Errorf("at %s: %+v", at, h)
		}
	}
}

func TestAfterAFailureItIsSaidWhatHasToChange(t *testing.T) {
	s := serving("bucket", "example.com/bucket")
	s.Status.Stuck = []v1alpha1.StuckObject{{UID: "uid", Reason: "Failed", Message: "it is full"}}
	h := (&Book{Finalizers: []Serving{s}}).Of(secret(nil), "example.com/bucket")
	const want = "kubectl annotate secrets keys -n shop retry=$(date +%s) --overwrite, or a change of the spec of ClusterFinalizer bucket or of its module"
	if !strings.Contains(h.Do, want) {
		t.Errorf("it says %s", h.Do)
	}
}

// Status has words of its own for reasons, and people see the others everywhere else.
func TestReasonsAreCalledAsInRecords(t *testing.T) {
	for word, reason := range map[string]finalize.Reason{
		"Failed": finalize.Failed, "Fault": finalize.AtFault, "DeadlineExceeded": finalize.Overdue, "NotReady": finalize.NotReady,
		"NotSelected": finalize.Unmeant, "Circular": finalize.Circular, "Monitor": finalize.Watched, "Unreachable": finalize.Troubled,
		"Blocked": finalize.Blocked, "RateLimited": finalize.Limited,
	} {
		if reasons[word] != string(reason) {
			t.Errorf("%s is %s, and in records %s", word, reasons[word], reason)
		}
		if advice(word) == advice("") {
			t.Errorf("nobody is told what to do about %s", word)
		}
	}
}

func TestTwoThatServeTheSameFinalizerServeNone(t *testing.T) {
	b := &Book{Finalizers: []Serving{serving("a", "example.com/x"), serving("b", "example.com/x")}}
	if h := b.Of(secret(nil), "example.com/x"); h.Owner != "ClusterFinalizer a and ClusterFinalizer b" {
		t.Errorf("%+v", h)
	}
}

func TestAFailureThatIsNotedOnTheObjectIsFound(t *testing.T) {
	for text, want := range map[string]string{
		`{"uid":"uid","by":{"example.com/x":{"signature":"s","data":{"failed":"it is full"}}}}`:   "it is full",
		`{"uid":"other","by":{"example.com/x":{"signature":"s","data":{"failed":"it is full"}}}}`: "",
		`{"uid":"uid","by":{"example.com/y":{"signature":"s","data":{"failed":"it is full"}}}}`:   "",
		`nonsense`: "",
	} {
		b := &Book{Finalizers: []Serving{serving("a", "example.com/x")}}
		o := secret(func(o *metav1.ObjectMeta) { o.Annotations = map[string]string{release.Notes: text} })
		if h := b.Of(o, "example.com/x"); h.Error != want {
			t.Errorf("%s: %q", text, h.Error)
		}
	}
}

func TestFinalizersOfKubernetesAreKnown(t *testing.T) {
	for finalizer, c := range map[string]struct {
		kind  Kind
		owner string
	}{
		"foregroundDeletion":                          {Kubernetes, "the garbage collector"},
		"orphan":                                      {Kubernetes, "the garbage collector"},
		"kubernetes.io/pv-protection":                 {Kubernetes, "kube-controller-manager (pv-protection)"},
		"external-attacher/ebs-csi-aws-com":           {Kubernetes, "the volume's CSI driver (external-attacher)"},
		"new.k8s.io/thing":                            {Kubernetes, "a component of Kubernetes"},
		"resources-finalizer.argocd.argoproj.io":      {Stranger, "Argo CD"},
		"acme.example.com/cleanup":                    {Stranger, Unnamed},
		"shop.gleaner.dev/gone":                       {Served, "the Finalizer shop/gone"},
		release.InUse:                                 {InUse, "Gleaner"},
		"service.kubernetes.io/load-balancer-cleanup": {Kubernetes, "the cloud-controller-manager (service)"},
	} {
		if h := (&Book{}).Of(secret(nil), finalizer); h.Kind != c.kind || h.Owner != c.owner || h.Waits == "" || h.Do == "" {
			t.Errorf("%s: %+v", finalizer, h)
		}
	}
}

func TestAStrangerIsWhoeverWroteTheFinalizer(t *testing.T) {
	fields := func(finalizer string) *metav1.FieldsV1 {
		raw, err := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:finalizers": map[string]any{".": map[string]any{}, `v:"` + finalizer + `"`: map[string]any{}}}})
		if err != nil {
			t.Fatal(err)
		}
		return metav1.NewFieldsV1(string(raw))
	}
	o := secret(func(o *metav1.ObjectMeta) {
		o.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "somebody", FieldsV1: fields("example.com/other")},
			{Manager: "acme-operator", FieldsV1: fields("acme.example.com/cleanup"), Time: &deleted},
			{Manager: "nobody"},
		}
	})
	h := (&Book{}).Of(o, "acme.example.com/cleanup")
	if h.Owner != "acme-operator" || h.PlacedBy != "acme-operator" || !h.PlacedAt.Equal(&deleted) {
		t.Errorf("%+v", h)
	}
}

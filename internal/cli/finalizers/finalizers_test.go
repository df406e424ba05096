package finalizers

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
	"github.com/gleaner-dev/gleaner/operator/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
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

func TestDescribe_HoldNamesPolicies(t *testing.T) {
	for claim, c := range map[string]struct {
		change func(*Policy)
		owner  string
	}{
		"the policy that selects it": {nil, "Gleaner, for ClusterGCPolicy p"},
		"not one that only watches":  {func(p *Policy) { p.Spec.Mode = v1alpha1.ModeMonitor }, "Gleaner, without a policy"},
		"not one of other resources": {func(p *Policy) { p.Spec.Resources[0].Resources = []string{"pods"} }, "Gleaner, without a policy"},
		"not one of other labels": {func(p *Policy) {
			p.Spec.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "c"}}
		}, "Gleaner, without a policy"},
		"not one of other namespaces": {func(p *Policy) {
			p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "other"}}
		}, "Gleaner, without a policy"},
		"not one of another namespace": {func(p *Policy) { p.Namespace = "other" }, "Gleaner, without a policy"},
		"not one that only collects": {func(p *Policy) {
			p.Spec.Fixed = &v1alpha1.FixedVerdicts{Collect: &v1alpha1.FixedVerdict{}}
		}, "Gleaner, without a policy"},
		"one whose module is not known yet": {func(p *Policy) {
			p.Spec.Fixed, p.Spec.Module = nil, &v1alpha1.ModuleReference{Name: "m"}
		}, "Gleaner, for ClusterGCPolicy p"},
		"not one whose module does not answer that": {func(p *Policy) {
			p.Spec.Fixed, p.Spec.Module, p.Status.Hooks = nil, &v1alpha1.ModuleReference{Name: "m"}, []string{"collect"}
		}, "Gleaner, without a policy"},
	} {
		t.Run(claim, func(t *testing.T) {
			b := &Resources{Policies: []Policy{policy("p", c.change)}, labels: map[string]labels.Set{"shop": {"team": "shop"}}}
			if h := b.Describe(secret(nil), graph.Hold); h.Kind != Hold || h.Owner != c.owner || h.Advice == "" {
				t.Errorf("%+v", h)
			}
		})
	}
}

func TestDescribe_UnreadablePoliciesMayHold(t *testing.T) {
	b := &Resources{Unread: []string{"GCPolicies: forbidden"}}
	if h := b.Describe(secret(nil), graph.Hold); h.Owner != "Gleaner, for a policy that could not be read" {
		t.Errorf("%+v", h)
	}
}

func finalizerResource(name, entry string) FinalizerResource {
	s := FinalizerResource{Kind: v1alpha1.KindClusterFinalizer, ObjectMeta: metav1.ObjectMeta{Name: name}, Finalizer: entry}
	s.Spec.Deadline = &metav1.Duration{Duration: time.Hour}
	return s
}

func TestDescribe_ServedFinalizerShowsStatus(t *testing.T) {
	since := metav1.NewTime(deleted.Add(time.Second))
	retry, deadline := metav1.NewTime(deleted.Add(time.Minute)), metav1.NewTime(deleted.Add(time.Hour))
	s := finalizerResource("bucket", "example.com/bucket")
	s.Status.StalledObjects = []v1alpha1.StalledObject{
		{UID: "other", Reason: "Fault", Message: "another"},
		{UID: "uid", Reason: "Error", Message: "no answer", Attempts: 3, SinceTime: since, NextRetryTime: &retry, DeadlineTime: &deadline},
	}
	got := (&Resources{Finalizers: []FinalizerResource{s}}).Describe(secret(nil), "example.com/bucket")
	want := Finalizer{
		Name: "example.com/bucket", Kind: Served, Owner: "ClusterFinalizer bucket", WaitsFor: "its module to finish",
		Reason: "FinalizerError", Error: "no answer", Attempts: 3, Since: &since, NextRetry: &retry, Deadline: &deadline, Advice: got.Advice,
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Advice == "" {
		t.Error(diff)
	}
}

func TestSetRetry_PastIsDue(t *testing.T) {
	retry, since := metav1.NewTime(deleted.Add(time.Minute)), metav1.NewTime(deleted.Add(time.Second))
	s := finalizerResource("bucket", "example.com/bucket")
	s.Status.StalledObjects = []v1alpha1.StalledObject{{UID: "uid", Reason: "Blocked", Message: "no answer", NextRetryTime: &retry, SinceTime: since}}
	for at, due := range map[time.Time]bool{retry.Add(-time.Second): false, retry.Time: true, retry.Add(time.Hour): true} {
		h := (&Resources{Finalizers: []FinalizerResource{s}, ReadAt: at}).Describe(secret(nil), "example.com/bucket")
		if h.RetryDue != due || (h.NextRetry == nil) != due || !h.Since.Equal(&since) {
			t.Errorf("at %s: %+v", at, h)
		}
	}
}

func TestAdvice_AfterFailure(t *testing.T) {
	s := finalizerResource("bucket", "example.com/bucket")
	s.Status.StalledObjects = []v1alpha1.StalledObject{{UID: "uid", Reason: "Failed", Message: "it is full"}}
	h := (&Resources{Finalizers: []FinalizerResource{s}}).Describe(secret(nil), "example.com/bucket")
	const want = "kubectl annotate secrets keys -n shop retry=$(date +%s) --overwrite, or change the spec of ClusterFinalizer bucket or its module"
	if !strings.Contains(h.Advice, want) {
		t.Errorf("it says %s", h.Advice)
	}
}

// Status has words of its own for reasons, and people see the others everywhere else.
func TestReasons_MatchRecords(t *testing.T) {
	for word, reason := range map[string]finalizers.Reason{
		"Failed": finalizers.Failed, "Fault": finalizers.Fault, "DeadlineExceeded": finalizers.DeadlineExceeded, "NotReady": finalizers.NotReady,
		"NotSelected": finalizers.NotSelected, "Circular": finalizers.Circular, "Monitor": finalizers.Monitored, "Error": finalizers.HostError,
		"Blocked": finalizers.Blocked, "RateLimited": finalizers.RateLimited,
	} {
		if reasons[word] != string(reason) {
			t.Errorf("%s is %s, and in records %s", word, reasons[word], reason)
		}
		if advice(word) == advice("") {
			t.Errorf("nobody is told what to do about %s", word)
		}
	}
}

func TestDescribe_DuplicateFinalizerResources(t *testing.T) {
	b := &Resources{Finalizers: []FinalizerResource{finalizerResource("a", "example.com/x"), finalizerResource("b", "example.com/x")}}
	if h := b.Describe(secret(nil), "example.com/x"); h.Owner != "ClusterFinalizer a and ClusterFinalizer b" {
		t.Errorf("%+v", h)
	}
}

func TestFailureOf_ReadsStateAnnotation(t *testing.T) {
	for text, want := range map[string]string{
		`{"uid":"uid","by":{"example.com/x":{"signature":"s","data":{"failed":"it is full"}}}}`:   "it is full",
		`{"uid":"other","by":{"example.com/x":{"signature":"s","data":{"failed":"it is full"}}}}`: "",
		`{"uid":"uid","by":{"example.com/y":{"signature":"s","data":{"failed":"it is full"}}}}`:   "",
		`nonsense`: "",
	} {
		b := &Resources{Finalizers: []FinalizerResource{finalizerResource("a", "example.com/x")}}
		o := secret(func(o *metav1.ObjectMeta) { o.Annotations = map[string]string{objectstate.FinalizersAnnotation: text} })
		if h := b.Describe(o, "example.com/x"); h.Error != want {
			t.Errorf("%s: %q", text, h.Error)
		}
	}
}

func TestDescribe_KubernetesFinalizers(t *testing.T) {
	for finalizer, c := range map[string]struct {
		kind  Kind
		owner string
	}{
		"foregroundDeletion":                          {Kubernetes, "the garbage collector"},
		"orphan":                                      {Kubernetes, "the garbage collector"},
		"kubernetes.io/pv-protection":                 {Kubernetes, "kube-controller-manager (pv-protection)"},
		"external-attacher/ebs-csi-aws-com":           {Kubernetes, "the volume's CSI driver (external-attacher)"},
		"new.k8s.io/thing":                            {Kubernetes, "a component of Kubernetes"},
		"resources-finalizer.argocd.argoproj.io":      {ThirdParty, "Argo CD"},
		"acme.example.com/cleanup":                    {ThirdParty, UnknownController},
		"shop.gleaner.dev/gone":                       {Served, "the Finalizer shop/gone"},
		v1alpha1.InUseFinalizer:                       {InUse, "Gleaner"},
		"service.kubernetes.io/load-balancer-cleanup": {Kubernetes, "the cloud-controller-manager (service)"},
	} {
		if h := (&Resources{}).Describe(secret(nil), finalizer); h.Kind != c.kind || h.Owner != c.owner || h.WaitsFor == "" || h.Advice == "" {
			t.Errorf("%s: %+v", finalizer, h)
		}
	}
}

func TestDescribe_ThirdPartyIsFieldManager(t *testing.T) {
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
	h := (&Resources{}).Describe(o, "acme.example.com/cleanup")
	if h.Owner != "acme-operator" || h.AddedBy != "acme-operator" || !h.AddedAt.Equal(&deleted) {
		t.Errorf("%+v", h)
	}
}

package noderun

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

func policy(t *testing.T, spec string) *v1alpha1.NodeRetentionPolicy {
	t.Helper()
	p := &v1alpha1.NodeRetentionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 2}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCompile(t *testing.T) {
	one, many := 1, 100
	got := compile(policy(t, `{mode: Enforce, images: {highThresholdPercent: 85, lowThresholdPercent: 80, minAge: 2m, maxAge: 720h, keep: [a, b]},
		containers: {minAge: 1m, maxPerPodContainer: 1, maxContainers: 100}}`))
	want := noderetention.Policy{
		Name: "p", Generation: 2, Enforce: true,
		Images: &noderetention.ImageLimits{
			MinAge: 2 * time.Minute, MaxAge: 720 * time.Hour, Usage: &retain.Watermarks{High: 85, Low: 80}, Keep: []string{"a", "b"},
		},
		Containers: &noderetention.ContainerLimits{MinAge: time.Minute, MaxPerContainer: &one, MaxTotal: &many},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Such policies exist only if an older definition, or none, has let them in.
func TestCompile_WhatIsNotValid_RemovesNothing(t *testing.T) {
	for spec, want := range map[string]noderetention.Policy{
		`{mode: Sometimes, images: {keep: [a]}}`:                                                        {Images: &noderetention.ImageLimits{Keep: []string{"a"}}},
		`{mode: Enforce, images: {highThresholdPercent: 85, maxAge: 1h}}`:                               {Enforce: true, Images: &noderetention.ImageLimits{MaxAge: time.Hour}},
		`{mode: Enforce, images: {highThresholdPercent: 85, lowThresholdPercent: 80, minAge: 2 weeks}}`: {Enforce: true, Images: &noderetention.ImageLimits{}},
		`{mode: Enforce, images: {maxAge: soon, keep: [a]}}`:                                            {Enforce: true, Images: &noderetention.ImageLimits{Keep: []string{"a"}}},
		`{mode: Enforce, containers: {minAge: 1d, maxContainers: 0}}`:                                   {Enforce: true},
	} {
		want.Name, want.Generation = "p", 2
		if diff := cmp.Diff(want, compile(policy(t, spec))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", spec, diff)
		}
	}
}

// The agent ends a round if the policies change: their order must not.
func TestPolicies_AreInTheOrderOfTheirNames(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}}
	for _, name := range []string{"c", "a", "b"} {
		objects = append(objects, &v1alpha1.NodeRetentionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}})
	}
	s := &source{name: "node1", cached: reversed{fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}}
	if _, known := s.policies(); known {
		t.Error("they are known before the caches are filled")
	}
	s.synced.Store(true)
	policies, known := s.policies()
	var got []string
	for _, p := range policies {
		got = append(got, p.Name+" "+p.UID)
	}
	if diff := cmp.Diff([]string{"a uid-a", "b uid-b", "c uid-c"}, got); diff != "" || !known {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// reversed lists in the reverse order.
type reversed struct{ client.Reader }

func (r reversed) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := r.Reader.List(ctx, list, options...)
	if l, ok := list.(*v1alpha1.NodeRetentionPolicyList); ok {
		slices.Reverse(l.Items)
	}
	return err
}

func TestSelects(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "batch"}}}
	for spec, want := range map[string]bool{
		`{}`:                 true,
		`{nodeSelector: {}}`: true,
		`{nodeSelector: {matchLabels: {pool: batch}}}`:                                       true,
		`{nodeSelector: {matchLabels: {pool: web}}}`:                                         false,
		`{nodeSelector: {matchExpressions: [{key: pool, operator: Near, values: [batch]}]}}`: false,
	} {
		if got := selects(policy(t, spec), node); got != want {
			t.Errorf("%s: %v", spec, got)
		}
	}
}

const pod = `
metadata: {name: web, namespace: shop, uid: u, annotations: {kubernetes.io/config.mirror: m, large: x}, managedFields: [{manager: x}]}
spec:
  nodeName: node1
  initContainers: [{name: i, image: init, env: [{name: PASSWORD, value: secret}]}]
  containers: [{name: c, image: main, args: [x]}, {name: d, image: side}]
  ephemeralContainers: [{name: e, image: debug}]
  volumes: [{name: v, image: {reference: data}}, {name: w, emptyDir: {}}]
`

func TestNeeds_AreWhatAPodNames_AlsoAfterItWasTrimmed(t *testing.T) {
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(pod), &p); err != nil {
		t.Fatal(err)
	}
	trimmed, err := trim(p.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	for what, one := range map[string]*corev1.Pod{"whole": &p, "trimmed": trimmed.(*corev1.Pod)} {
		var got, ended nodeagent.Needs
		add(&got, one)
		want := nodeagent.Needs{Images: []string{"init", "main", "side", "debug", "data"}, Live: []string{"u", "m"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
			one.Status.Phase = phase
			add(&ended, one)
		}
		if diff := cmp.Diff(nodeagent.Needs{}, ended); diff != "" {
			t.Errorf("%s, ended (-want +got):\n%s", what, diff)
		}
	}
	if c := trimmed.(*corev1.Pod).Spec.InitContainers[0]; c.Env != nil || len(trimmed.(*corev1.Pod).ManagedFields) > 0 || len(trimmed.(*corev1.Pod).Annotations) != 1 {
		t.Errorf("it is still large: %+v", trimmed)
	}
}

func TestMatters(t *testing.T) {
	node := func(label string, pressure corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": label}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "True"}, {Type: corev1.NodeDiskPressure, Status: pressure}}
		return n
	}
	for what, c := range map[string]struct {
		before, after any
		want          bool
	}{
		"a heartbeat":          {node("a", "False"), node("a", "False"), false},
		"the pressure begins":  {node("a", "False"), node("a", "True"), true},
		"the pressure lasts":   {node("a", "True"), node("a", "True"), false},
		"the pressure ends":    {node("a", "True"), node("a", "False"), false},
		"another label":        {node("a", "False"), node("b", "False"), true},
		"the spec of a policy": {policy(t, `{}`), policy(t, `{}`), true},
	} {
		if got := matters(c.before, c.after); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

package release

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
)

type configMapsOnly struct{ discovery.DiscoveryInterface }

func (configMapsOnly) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "patch"}},
	}}}, nil
}

// newStop returns a run with --stop-operator on a cluster with an operator, and the client that scales it.
func newStop(t *testing.T, gleaners []client.Object, objects ...runtime.Object) (*releaseRun, *metadatafake.FakeMetadataClient, *bytes.Buffer) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := errors.Join(metav1.AddMetaToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	deployment := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
	deployment.Namespace, deployment.Name = "gleaner-system", "gleaner"
	metadata := metadatafake.NewSimpleMetadataClient(scheme, append(objects, deployment)...)
	own := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(own); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := &releaseRun{
		options: &options{Flags: kubectl.NewFlags(), all: true, yes: true, stopOperator: "gleaner-system/gleaner"},
		out:     &out, errOut: &out,
		gleaner: fake.NewClientBuilder().WithScheme(own).WithObjects(gleaners...).Build(),
		Releaser: &release.Releaser{Metadata: metadata, Discovery: configMapsOnly{}, Leases: kubefake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "gleaner-system", Name: release.LeaseName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a"), LeaseDurationSeconds: ptr.To[int32](1), RenewTime: ptr.To(metav1.NowMicro())},
		}, &coordinationv1.Lease{ // anyone who may create leases in a namespace can make this one
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: release.LeaseName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("tenant"), LeaseDurationSeconds: ptr.To[int32](1 << 30), RenewTime: ptr.To(metav1.NowMicro())},
		}).CoordinationV1()},
	}
	s.Namespace = ptr.To("")
	return s, metadata, &out
}

func isScaled(c *metadatafake.FakeMetadataClient) bool {
	for _, a := range c.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok && p.GetResource().Resource == "deployments" && string(p.GetPatch()) == `{"spec":{"replicas":0}}` {
			return true
		}
	}
	return false
}

func TestStopOperator_IsRefused_WhileOnlyTheOperatorCanComplete(t *testing.T) {
	configMap := func(finalizer string, deleted bool) runtime.Object {
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		o.Namespace, o.Name, o.Finalizers = "shop", "a", []string{finalizer}
		if deleted {
			o.DeletionTimestamp = ptr.To(metav1.Now())
		}
		return o
	}
	named := metav1.ObjectMeta{Namespace: "shop", Name: "f"}
	for want, c := range map[string]struct {
		own     []client.Object
		objects []runtime.Object
	}{
		"there is 1 Finalizer: ":              {own: []client.Object{&v1alpha1.Finalizer{ObjectMeta: named}}},
		"there are 2 ClusterFinalizers: ":     {own: []client.Object{&v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: "b"}}}},
		"such as shop/configmaps/a: if they ": {objects: []runtime.Object{configMap(graph.Hold, true)}},
		"1 object is being deleted":           {objects: []runtime.Object{configMap("shop.archive.gleaner.dev/p", true)}},
		"":                                    {objects: []runtime.Object{configMap(graph.Hold, false)}},
	} {
		s, metadata, out := newStop(t, c.own, c.objects...)
		stopped, err := s.stop(t.Context())
		if want == "" {
			if err != nil || !stopped || !s.KeepTerminating || !isScaled(metadata) || !strings.Contains(out.String(), "Stopped the operator") {
				t.Errorf("stopped: %t, %v\n%s", stopped, err, out)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || stopped || isScaled(metadata) {
			t.Errorf("stopped: %t, scaled: %t, with error %v, want one with %q", stopped, isScaled(metadata), err, want)
		}
	}
}

func TestStopOperator_AnUnreadableFinalizer_IsNotAbsent(t *testing.T) {
	s, metadata, _ := newStop(t, nil)
	s.gleaner = failing{}
	if stopped, err := s.stop(t.Context()); err == nil || stopped || isScaled(metadata) {
		t.Errorf("stopped: %t, %v", stopped, err)
	}
}

type failing struct{ client.Reader }

func (failing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("unavailable")
}

func TestStopOperator_RunningPods_AreNamed(t *testing.T) {
	pod := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	pod.Namespace, pod.Name, pod.Labels = "gleaner-system", "gleaner-1", map[string]string{"app.kubernetes.io/name": "gleaner", "app.kubernetes.io/component": "operator"}
	s, _, _ := newStop(t, nil, pod)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if stopped, err := s.stop(ctx); err == nil || stopped || !strings.Contains(err.Error(), "the operator is still running (pod gleaner-1") {
		t.Errorf("stopped: %t, %v", stopped, err)
	}
}

func TestStopOperator_AdmissionObjectsAreRemoved_WhateverLeasesTenantsHave(t *testing.T) {
	s, _, _ := newStop(t, nil)
	if running, err := s.runningOperator(t.Context()); err != nil || running != "" {
		t.Errorf("running: %s, %v", running, err)
	}
	s.stopOperator = ""
	if running, err := s.runningOperator(t.Context()); err != nil || running == "" {
		t.Errorf("without --stop-operator: running: %s, %v", running, err)
	}
}

func TestStopOperator_InvalidArguments(t *testing.T) {
	for _, o := range []options{
		{stopOperator: "gleaner", all: true}, {stopOperator: "a/b/c", all: true}, {stopOperator: "/gleaner", all: true}, {stopOperator: "a/b"},
		{stopOperator: "a/b", all: true, finalizer: "example.com/f"},
	} {
		o.Flags = kubectl.NewFlags()
		o.Namespace = ptr.To("")
		var usage exit.Error
		if _, err := o.deployment(); !errors.As(err, &usage) || usage.Code != exit.CodeUsage {
			t.Errorf("%+v: got error %v", o, err)
		}
	}
}

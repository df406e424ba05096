package networks_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/gleaner-dev/gleaner/operator/networks"
)

func cluster() *fake.Clientset {
	return fake.NewSimpleClientset(
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec:       corev1.NodeSpec{PodCIDR: "198.51.100.0/25", PodCIDRs: []string{"198.51.100.0/25", "2001:db8:1::/64"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: "a"}, {Type: corev1.NodeInternalIP, Address: "203.0.113.5"},
			}},
		},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"198.51.100.128/25"}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"198.51.100.129"}}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.9"}}},
		},
	)
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func compare(t *testing.T, want, got []netip.Prefix) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestNetworks_FindsNodesPodsServicesAndAPIServer(t *testing.T) {
	got, err := networks.New(cluster(), nil, time.Now).Networks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, prefixes("198.51.100.0/25", "198.51.100.0/25", "2001:db8:1::/64", "203.0.113.5/32", "198.51.100.128/25", "198.51.100.129/32", "203.0.113.9/32"), got)
}

func TestNetworks_ReturnsConfiguredNetworks(t *testing.T) {
	got, err := networks.New(nil, prefixes("198.51.100.0/24"), time.Now).Networks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	compare(t, prefixes("198.51.100.0/24"), got)
}

func TestNetworks_CachesAndReturnsErrors(t *testing.T) {
	client, now := cluster(), time.Now()
	broken, requests := true, 0
	client.PrependReactor("list", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
		requests++
		return broken, nil, errors.New("no answer")
	})
	f := networks.New(client, nil, func() time.Time { return now })
	for range 5 {
		if got, err := f.Networks(t.Context()); err == nil {
			t.Fatalf("got %v", got)
		}
	}
	if requests != 1 {
		t.Errorf("%d requests within the retry interval", requests)
	}
	broken, now = false, now.Add(time.Minute)
	if _, err := f.Networks(t.Context()); err != nil {
		t.Errorf("after recovery: %v", err)
	}
	broken, now = true, now.Add(30*time.Minute)
	if got, err := f.Networks(t.Context()); err != nil || len(got) == 0 {
		t.Errorf("the cached result is not used: %v, %v", got, err)
	}
	now = now.Add(time.Hour)
	if got, err := f.Networks(t.Context()); err == nil {
		t.Errorf("an expired result is used: %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Networks(ctx); err == nil {
		t.Error("no error for a canceled context")
	}
}

// Package networks finds the cluster's own networks: the addresses of nodes and API
// servers, and the networks of pods and Services. Users who may write a resource in one
// namespace must not reach them through the operator, even if the addresses are public.
//
// Pod networks that are not in the nodes' podCIDRs are not found, and must be configured.
package networks

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	refreshInterval = 5 * time.Minute
	retryInterval   = 10 * time.Second
	maxAge          = time.Hour // of the result, if it can't be refreshed
	refreshTimeout  = 30 * time.Second
	pageSize        = 500
)

// A Finder finds networks on demand, and caches them. Its methods may be called
// concurrently.
type Finder struct {
	client     kubernetes.Interface
	now        func() time.Time
	configured []netip.Prefix

	lock chan struct{} // capacity 1: a lock that protects the fields below

	found                []netip.Prefix
	foundAt, attemptedAt time.Time
	err                  error // of the last attempt
}

// New returns a Finder with an empty cache. If networks are given, it returns those, and
// sends no requests.
func New(client kubernetes.Interface, configured []netip.Prefix, now func() time.Time) *Finder {
	f := &Finder{client: client, now: now, configured: configured, lock: make(chan struct{}, 1)}
	f.lock <- struct{}{}
	return f
}

// Networks returns the networks of the cluster. An error means that they are unknown.
func (f *Finder) Networks(ctx context.Context) ([]netip.Prefix, error) {
	if len(f.configured) != 0 {
		return f.configured, nil
	}
	select {
	case <-f.lock:
		defer func() { f.lock <- struct{}{} }()
	case <-ctx.Done():
		return nil, fmt.Errorf("find cluster networks: %w", ctx.Err())
	}
	age, sinceAttempt := f.now().Sub(f.foundAt), f.now().Sub(f.attemptedAt)
	if age >= refreshInterval && sinceAttempt >= retryInterval {
		f.refresh(ctx)
		age = f.now().Sub(f.foundAt)
	}
	if age >= maxAge {
		return nil, fmt.Errorf("find cluster networks: %w", f.err)
	}
	return f.found, nil
}

// refresh refreshes the result. After an error, the previous result is kept.
func (f *Finder) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	var all []netip.Prefix
	for _, find := range []func(context.Context, kubernetes.Interface) ([]netip.Prefix, error){nodeNetworks, serviceNetworks, apiServerNetworks} {
		networks, err := find(ctx, f.client)
		if err != nil {
			f.err, f.attemptedAt = err, f.now()
			return
		}
		all = append(all, networks...)
	}
	f.found, f.foundAt, f.attemptedAt, f.err = all, f.now(), f.now(), nil
}

// nodeNetworks returns the addresses of nodes and the networks of their pods.
func nodeNetworks(ctx context.Context, client kubernetes.Interface) ([]netip.Prefix, error) {
	var found []netip.Prefix
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		for _, node := range page.Items {
			found = appendPrefixes(found, node.Spec.PodCIDR)
			found = appendPrefixes(found, node.Spec.PodCIDRs...)
			for _, a := range node.Status.Addresses {
				found = appendPrefixes(found, a.Address)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// serviceNetworks returns the networks of Services, if the API server serves ServiceCIDRs
// (Kubernetes 1.33).
func serviceNetworks(ctx context.Context, client kubernetes.Interface) ([]netip.Prefix, error) {
	list, err := client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{Limit: pageSize})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	var found []netip.Prefix
	for _, c := range list.Items {
		found = appendPrefixes(found, c.Spec.CIDRs...)
	}
	return found, nil
}

// apiServerNetworks returns the addresses of the API server: those of its Service and of its
// endpoints.
func apiServerNetworks(ctx context.Context, client kubernetes.Interface) ([]netip.Prefix, error) {
	const name = "kubernetes"
	var found []netip.Prefix
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		found = appendPrefixes(found, service.Spec.ClusterIPs...)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get Service %s/%s: %w", metav1.NamespaceDefault, name, err)
	}
	slices, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name, Limit: pageSize})
	if err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service %s/%s: %w", metav1.NamespaceDefault, name, err)
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			found = appendPrefixes(found, endpoint.Addresses...)
		}
	}
	return found, nil
}

// appendPrefixes appends the texts that are networks or addresses. Others are ignored, such as node
// addresses of type corev1.NodeHostName.
func appendPrefixes(found []netip.Prefix, texts ...string) []netip.Prefix {
	for _, text := range texts {
		if network, err := netip.ParsePrefix(text); err == nil {
			found = append(found, network.Masked())
		} else if address, err := netip.ParseAddr(text); err == nil && text != corev1.ClusterIPNone {
			address = address.Unmap().WithZone("")
			found = append(found, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return found
}

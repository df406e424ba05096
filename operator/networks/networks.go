// Package networks finds the networks of the cluster itself: the addresses of its
// nodes and of its API server, and those that its nodes and Services hand out. Who
// writes a resource in some namespace has no business there through the operator,
// also where the addresses look public.
//
// Pods of network plugins that take their addresses from elsewhere than the nodes'
// podCIDRs are not found: such networks have to be given.
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
	maxAge          = time.Hour // of what was found, where it can't be found anew
	lookTimeout     = 30 * time.Second
	pageSize        = 500
)

// Finder finds networks when it is asked, and remembers them for a while. Its methods
// may be called concurrently.
type Finder struct {
	client kubernetes.Interface
	now    func() time.Time
	given  []netip.Prefix

	turn chan struct{} // holds one value, and with it comes the right to what follows

	found          []netip.Prefix
	foundAt, tried time.Time
	err            error // of the last attempt
}

// New returns a Finder that has found nothing yet. Where networks are given, they are
// all that there are, and no cluster is asked.
func New(client kubernetes.Interface, given []netip.Prefix, now func() time.Time) *Finder {
	f := &Finder{client: client, now: now, given: given, turn: make(chan struct{}, 1)}
	f.turn <- struct{}{}
	return f
}

// Networks returns the networks of the cluster. The error means that they are not
// known, and not that there are none.
func (f *Finder) Networks(ctx context.Context) ([]netip.Prefix, error) {
	if len(f.given) != 0 {
		return f.given, nil
	}
	select {
	case <-f.turn:
		defer func() { f.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, fmt.Errorf("find the cluster's networks: %w", ctx.Err())
	}
	age, waited := f.now().Sub(f.foundAt), f.now().Sub(f.tried)
	if age >= refreshInterval && waited >= retryInterval {
		f.look(ctx)
		age = f.now().Sub(f.foundAt)
	}
	if age >= maxAge {
		return nil, fmt.Errorf("find the cluster's networks: %w", f.err)
	}
	return f.found, nil
}

// look asks the cluster. What was known stays where it does not answer.
func (f *Finder) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var all []netip.Prefix
	for _, ask := range []func(context.Context, kubernetes.Interface) ([]netip.Prefix, error){ofNodes, ofServices, ofAPIServer} {
		networks, err := ask(ctx, f.client)
		if err != nil {
			f.err, f.tried = err, f.now()
			return
		}
		all = append(all, networks...)
	}
	f.found, f.foundAt, f.tried, f.err = all, f.now(), f.now(), nil
}

// ofNodes are the addresses of nodes, and those that they give to pods.
func ofNodes(ctx context.Context, client kubernetes.Interface) ([]netip.Prefix, error) {
	var found []netip.Prefix
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		for _, node := range page.Items {
			found = add(found, node.Spec.PodCIDR)
			found = add(found, node.Spec.PodCIDRs...)
			for _, a := range node.Status.Addresses {
				found = add(found, a.Address)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// ofServices are the networks of Services, where the API server has a resource of them
// (Kubernetes 1.33).
func ofServices(ctx context.Context, client kubernetes.Interface) ([]netip.Prefix, error) {
	list, err := client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{Limit: pageSize})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	var found []netip.Prefix
	for _, c := range list.Items {
		found = add(found, c.Spec.CIDRs...)
	}
	return found, nil
}

// ofAPIServer are the addresses at which the API server itself is, by its Service and
// behind that.
func ofAPIServer(ctx context.Context, client kubernetes.Interface) ([]netip.Prefix, error) {
	const name = "kubernetes"
	var found []netip.Prefix
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		found = add(found, service.Spec.ClusterIPs...)
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
			found = add(found, endpoint.Addresses...)
		}
	}
	return found, nil
}

// add adds what is a network or an address, such as not each of a node's is:
// corev1.NodeHostName is a name.
func add(found []netip.Prefix, texts ...string) []netip.Prefix {
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

// Package inside runs Gleaner inside a test's own process, on a control plane: its
// types, and a collector with policies and finalizers.
//
// It has no command line, no leader election, and serves nothing by itself.
package inside

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// patience is for how long types are waited for.
const patience = 2 * time.Minute

// Define creates the custom resources' types, and waits until they are served.
func Define(t testing.TB, config *rest.Config) error {
	t.Helper()
	definitions, err := crds.Definitions()
	if err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, d := range definitions {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", d.Name, err)
		}
	}
	devtest.Eventually(t, patience, func() error {
		for _, d := range definitions {
			for _, v := range d.Spec.Versions {
				path := "/apis/" + d.Spec.Group + "/" + v.Name + "/" + d.Spec.Names.Plural
				if err := client.ApiextensionsV1().RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return nil
}

// Operator is an identity for a collector of its own: what it writes itself is told
// apart by that, and gets no finalizer.
func Operator(cluster *devcluster.Cluster) (*rest.Config, error) {
	return cluster.ConfigFor("gleaner", "system:masters")
}

// Options are those of the only collector of a cluster.
func Options(config *rest.Config) loop.Options {
	return loop.Options{
		Config: config, Namespace: metav1.NamespaceSystem, Workers: 20,
		DiscoveryInterval: 30 * time.Second, SweepInterval: time.Minute,
		CanaryInterval: time.Minute, SyncTimeout: 30 * time.Second,
		FinalizerNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // the tests' servers
		Ignored:           catalog.DefaultIgnored(), Evaluator: builtin.Policy{},
		Metrics: prometheus.NewRegistry(), Log: ctrl.Log,
	}
}

// Run runs a collector, and what else is made of it, until stop is called, which waits
// for its end; without that, until the process ends.
func Run(o loop.Options, also ...func(*loop.Loop) (manager.Runnable, error)) (collector *loop.Loop, stop func() error, err error) {
	if collector, err = loop.New(o); err != nil {
		return nil, nil, err
	}
	mgr, err := ctrl.NewManager(o.Config, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: ctrl.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	if err := collector.AddTo(mgr); err != nil {
		return nil, nil, err
	}
	for _, of := range also {
		runnable, err := of(collector)
		if err == nil {
			err = mgr.Add(runnable)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background()) // outlives the test that starts it
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return collector, func() error {
		cancel()
		return <-done
	}, nil
}

// Package policies runs the scenarios of test/integration/policies, and some of its
// own, beside the collector of kube-controller-manager.
package policies

import (
	"context"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

func TestMain(m *testing.M) {
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	devtest.Run(m, devcluster.Options{Controllers: controllers})
}

// controllers are those of the control planes.
var controllers = []string{"*"}

// shared is what the tests share, made when the first of them asks for it.
var shared struct {
	once      sync.Once
	collector *loop.Loop
	err       error
}

// collector returns the collector that the tests share. It ends with the process.
func collector(t *testing.T) *loop.Loop {
	t.Helper()
	config := devtest.Shared(t).RESTConfig()
	shared.once.Do(func() {
		if shared.err = define(t, config); shared.err == nil {
			shared.collector, _, shared.err = run(options(t, devtest.Shared(t), operator(t)))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.collector
}

// operator is whom the collector works as: what it writes itself is told apart by
// that.
func operator(t *testing.T) *rest.Config {
	t.Helper()
	config, err := devtest.Shared(t).ConfigFor("gleaner", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// define creates the custom resources' types, and waits until they are served.
func define(t *testing.T, config *rest.Config) error {
	definitions, err := crds.Definitions()
	if err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, d := range definitions {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(context.Background(), d, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
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

func options(t *testing.T, cluster *devcluster.Cluster, config *rest.Config) loop.Options {
	return loop.Options{
		Config: config, Namespace: "kube-system", Workers: 20, Beside: true,
		DiscoveryInterval: 30 * time.Second, SweepInterval: time.Minute,
		CanaryInterval: time.Minute, SyncTimeout: 30 * time.Second,
		FinalizerNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Ignored:           catalog.DefaultIgnored(), Evaluator: builtin.Policy{},
		Metrics: prometheus.NewRegistry(), Log: ctrl.Log, Veto: served(t, cluster),
	}
}

func (o *operation) options() loop.Options { return options(o.T, o.cluster, o.config) }

// run runs a collector until stop is called, which waits for its end.
func run(o loop.Options) (collector *loop.Loop, stop func() error, err error) {
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
	if o.Beside {
		hook, err := server(o.Veto, collector.Vetoes())
		if err == nil {
			err = mgr.Add(hook)
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

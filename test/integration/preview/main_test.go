// Package preview compares what a preview says with what then happens, on a real
// control plane whose own collector is switched off.
package preview

import (
	"context"
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
	ctrl.SetLogger(logr.Discard())
	devtest.Run(m, devcluster.Options{Controllers: []string{"*", "-garbage-collector-controller"}})
}

const patience = 2 * time.Minute

// shared is what the tests share, made when the first of them asks for it. It ends
// with the process.
var shared struct {
	once      sync.Once
	collector *loop.Loop
	err       error
}

func collector(t *testing.T) *loop.Loop {
	t.Helper()
	config := devtest.Shared(t).RESTConfig()
	shared.once.Do(func() {
		if shared.err = define(t, config); shared.err == nil {
			shared.collector, shared.err = run(config)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.collector
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
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{})
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

func run(config *rest.Config) (*loop.Loop, error) {
	collector, err := loop.New(loop.Options{
		Config: config, Namespace: "kube-system", Workers: 20,
		DiscoveryInterval: 30 * time.Second, SweepInterval: time.Minute,
		CanaryInterval: time.Minute, SyncTimeout: 30 * time.Second,
		Ignored: catalog.DefaultIgnored(), Evaluator: builtin.Policy{},
		Metrics: prometheus.NewRegistry(), Log: ctrl.Log,
	})
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: ctrl.Log,
	})
	if err == nil {
		err = collector.AddTo(mgr)
	}
	if err == nil {
		go func() { _ = mgr.Start(context.Background()) }() // until the process ends
	}
	return collector, err
}

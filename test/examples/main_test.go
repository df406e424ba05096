// Package examples runs the examples as their READMEs say: their own tests, and
// what they do on a real control plane with Gleaner.
package examples

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

const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	devtest.Run(m, devcluster.Options{Controllers: []string{"*", "-garbage-collector-controller"}})
}

// shared is what the tests share, made when the first of them asks for it.
var shared struct {
	once    sync.Once
	cluster *devcluster.Cluster
	err     error
}

// operated returns a control plane with Gleaner at work, as "gleaner dev" starts
// one. Both end with the process.
func operated(t *testing.T) *devcluster.Cluster {
	t.Helper()
	cluster := devtest.Shared(t)
	shared.once.Do(func() {
		if shared.err = define(t, cluster.RESTConfig()); shared.err == nil {
			shared.err = operate(cluster)
		}
		shared.cluster = cluster
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
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
			path := "/apis/" + d.Spec.Group + "/" + d.Spec.Versions[0].Name + "/" + d.Spec.Names.Plural
			if err := client.ApiextensionsV1().RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// operate starts the operator, with an identity of its own: what it writes itself
// gets no finalizer.
func operate(cluster *devcluster.Cluster) error {
	config, err := cluster.ConfigFor("gleaner", "system:masters")
	if err != nil {
		return err
	}
	collector, err := loop.New(loop.Options{
		Config: config, Namespace: "kube-system", Workers: 20,
		DiscoveryInterval: 30 * time.Second, SweepInterval: time.Minute,
		CanaryInterval: time.Minute, SyncTimeout: 30 * time.Second,
		Ignored: catalog.DefaultIgnored(), Evaluator: builtin.Policy{},
		FinalizerNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // the tests' servers
		Metrics:           prometheus.NewRegistry(), Log: ctrl.Log,
	})
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: ctrl.Log,
	})
	if err != nil {
		return err
	}
	if err := collector.AddTo(mgr); err != nil {
		return err
	}
	go func() { _ = mgr.Start(context.Background()) }() // ends with the process; a test that needs it says what is missing
	return nil
}

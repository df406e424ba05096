// Package differential runs the same scripts against kube-controller-manager's
// collector and against Gleaner, on equal control planes, and compares what is
// left after each step. See docs/differential.md.
package differential

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/policies/builtin"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	for _, s := range []*side{sides.theirs, sides.ours} {
		if s == nil {
			continue
		}
		if err := s.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// side is a control plane with one collector.
type side struct {
	name    string
	objects dynamic.Interface
	kube    kubernetes.Interface
	pending func() int // what the collector has in hand, where it tells
	stop    func() error

	unblocked *unblocked
}

var sides struct {
	once         sync.Once
	theirs, ours *side
	err          error
}

// both returns the two sides, started once. The custom types are defined
// before either collector starts, since the built-in one looks for new types
// only every thirty seconds.
func both(t *testing.T) (theirs, ours *side) {
	t.Helper()
	sides.once.Do(func() {
		if _, sides.err = devcluster.Build(t.Context(), os.Stderr); sides.err != nil {
			return
		}
		if sides.theirs, sides.err = newSide(t.Context(), "kube-controller-manager", upstream); sides.err != nil {
			return
		}
		start := gleaner
		if *beside {
			start = companion
		}
		sides.ours, sides.err = newSide(t.Context(), "Gleaner", start)
	})
	if sides.err != nil {
		t.Fatal(sides.err)
	}
	return sides.theirs, sides.ours
}

// A starter starts a collector on a cluster, and returns what it has in hand
// and how to stop it.
type starter func(ctx context.Context, cluster *devcluster.Cluster) (pending func() int, stop func() error, err error)

func newSide(ctx context.Context, name string, start starter) (*side, error) {
	cluster, err := devcluster.Start(ctx, devcluster.Options{NoControllerManager: true})
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(cluster.RESTConfig())
	config.QPS = -1
	s := &side{name: name, objects: dynamic.NewForConfigOrDie(config), kube: kubernetes.NewForConfigOrDie(config)}
	if err := define(ctx, config); err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	if s.unblocked, err = watchUnblocked(context.WithoutCancel(ctx), s.objects); err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	pending, stop, err := start(ctx, cluster)
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	s.pending = pending
	s.stop = func() error {
		s.unblocked.stop()
		return errors.Join(stop(), cluster.Stop())
	}
	return s, nil
}

func upstream(ctx context.Context, cluster *devcluster.Cluster) (func() int, func() error, error) {
	nothing := func() int { return 0 }
	return nothing, func() error { return nil }, cluster.StartControllerManager(ctx, "garbage-collector-controller")
}

func gleaner(_ context.Context, cluster *devcluster.Cluster) (func() int, func() error, error) {
	return collect(cluster.RESTConfig())
}

// companion starts both collectors on one control plane. Gleaner has no policies, and
// is to write nothing.
func companion(ctx context.Context, cluster *devcluster.Cluster) (func() int, func() error, error) {
	if err := cluster.StartControllerManager(ctx, "garbage-collector-controller"); err != nil {
		return nil, nil, err
	}
	var writes atomic.Int64
	config := cluster.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, &writes} })
	pending, stop, err := collect(config)
	return pending, func() error {
		err := stop()
		if n := writes.Load(); n != 0 {
			err = errors.Join(err, fmt.Errorf("without a policy, it has written %d times", n))
		}
		return err
	}, err
}

// counter counts what is written.
type counter struct {
	next   http.RoundTripper
	writes *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}

func collect(config *rest.Config) (func() int, func() error, error) {
	collector, err := loop.New(loop.Options{
		Beside: *beside,
		Config: config, Namespace: metav1.NamespaceSystem, Workers: 20,
		DiscoveryInterval: 30 * time.Second, SweepInterval: time.Minute,
		CanaryInterval: time.Minute, SyncTimeout: 30 * time.Second,
		Ignored: catalog.DefaultIgnored(), Evaluator: builtin.Policy{},
		Metrics: prometheus.NewRegistry(), Log: logr.Discard(),
	})
	if err != nil {
		return nil, nil, err
	}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: logr.Discard(),
	})
	if err == nil {
		err = collector.AddTo(mgr)
	}
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background()) // outlives the test that starts it
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return collector.Pending, func() error {
		cancel()
		return <-done
	}, nil
}

// define makes the custom types, and waits until they are served.
func define(ctx context.Context, config *rest.Config) error {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, k := range []kind{widget, cog} {
		scope := apiextensionsv1.ClusterScoped
		if k.namespaced {
			scope = apiextensionsv1.NamespaceScoped
		}
		name := k.resource.GroupResource().String()
		_, err := crds.Create(ctx, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: k.resource.Group, Scope: scope,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: k.resource.Resource, Kind: k.name},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: k.resource.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
						OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
					},
				}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("define %s: %w", name, err)
		}
	}
	objects := dynamic.NewForConfigOrDie(config)
	for _, k := range []kind{widget, cog} {
		for {
			_, err := objects.Resource(k.resource).List(ctx, metav1.ListOptions{})
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for %s: %w", k.resource, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

const patience = time.Minute

// marker makes and collects a chain of objects, which a collector gets to after
// what came before.
func (s *side) marker(t *testing.T, p place) {
	t.Helper()
	owner := s.create(t, p, step{object: "marker", kind: configMap}, nil)
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.GetName(), UID: owner.GetUID()}
	child := s.create(t, p, step{object: "marked", kind: widget}, []metav1.OwnerReference{ref})
	ref = metav1.OwnerReference{APIVersion: widget.resource.GroupVersion().String(), Kind: widget.name, Name: child.GetName(), UID: child.GetUID()}
	last := s.create(t, p, step{object: "marked", kind: configMap}, []metav1.OwnerReference{ref})
	background := metav1.DeletePropagationBackground
	if err := s.client(configMap, p.first).Delete(t.Context(), owner.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatalf("%s: delete marker: %v", s.name, err)
	}
	devtest.Eventually(t, patience, func() error {
		list, err := s.client(configMap, p.first).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + last.GetName()})
		switch {
		case err != nil:
			return err
		case len(list.Items) != 0:
			return fmt.Errorf("%s: marker %s is not collected", s.name, last.GetName())
		}
		if n := s.pending(); n != 0 {
			return fmt.Errorf("%s has %d objects in hand", s.name, n)
		}
		return nil
	})
}

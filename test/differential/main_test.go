// Package differential runs the same scripts against the collector of
// kube-controller-manager and against Gleaner, on equal control planes, and compares the
// state after each step. See docs/differential.md.
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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	ctrl.SetLogger(logr.Discard())
	devtest.Run(m, devcluster.Options{}, stopSides)
}

// stopSides stops both control planes, if they were started.
func stopSides() (err error) {
	for _, s := range []*side{sides.theirs, sides.own} {
		if s != nil {
			err = errors.Join(err, s.stop())
		}
	}
	return err
}

// side is a control plane with a collector.
type side struct {
	name    string
	objects dynamic.Interface
	kube    kubernetes.Interface
	pending func() int // number of pending objects, if known
	stop    func() error

	unblocked *unblockRecorder
	cascades  *cascadeRecorder // of Gleaner in primary mode
}

var sides struct {
	once        sync.Once
	theirs, own *side
	err         error
}

// bothSides returns the two sides, which are started once. The custom types are created
// before the collectors start, since the built-in one discovers new types
// only every thirty seconds.
func bothSides(t *testing.T) (theirs, own *side) {
	t.Helper()
	sides.once.Do(func() {
		if _, sides.err = devcluster.Build(t.Context(), os.Stderr); sides.err != nil {
			return
		}
		if sides.theirs, sides.err = newSide(t.Context(), "kube-controller-manager", startUpstream); sides.err != nil {
			return
		}
		start := startGleaner
		if *companionMode {
			start = startCompanion
		}
		if sides.own, sides.err = newSide(t.Context(), "Gleaner", start); sides.err != nil || *companionMode {
			return
		}
		sides.own.cascades, sides.err = watchCascades(context.WithoutCancel(t.Context()), sides.own)
	})
	if sides.err != nil {
		t.Fatal(sides.err)
	}
	return sides.theirs, sides.own
}

// A starter starts a collector on a cluster, and returns its number of pending objects
// and a function that stops it.
type starter func(ctx context.Context, cluster *devcluster.Cluster) (pending func() int, stop func() error, err error)

func newSide(ctx context.Context, name string, start starter) (*side, error) {
	cluster, err := devcluster.Start(ctx, devcluster.Options{NoControllerManager: true})
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(cluster.RESTConfig())
	config.QPS = -1
	s := &side{name: name, objects: dynamic.NewForConfigOrDie(config), kube: kubernetes.NewForConfigOrDie(config)}
	if err := createTypes(ctx, config); err != nil {
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
		if s.cascades != nil {
			s.cascades.stop()
		}
		return errors.Join(stop(), cluster.Stop())
	}
	return s, nil
}

func startUpstream(ctx context.Context, cluster *devcluster.Cluster) (func() int, func() error, error) {
	nothing := func() int { return 0 }
	return nothing, func() error { return nil }, cluster.StartControllerManager(ctx, "garbage-collector-controller")
}

func startGleaner(_ context.Context, cluster *devcluster.Cluster) (func() int, func() error, error) {
	return runCollector(cluster.RESTConfig())
}

// startCompanion starts both collectors on one control plane. Gleaner has no policies, and
// must not write.
func startCompanion(ctx context.Context, cluster *devcluster.Cluster) (func() int, func() error, error) {
	if err := cluster.StartControllerManager(ctx, "garbage-collector-controller"); err != nil {
		return nil, nil, err
	}
	var writes atomic.Int64
	config := cluster.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return writeCounter{next, &writes} })
	pending, stop, err := runCollector(config)
	return pending, func() error {
		err := stop()
		if n := writes.Load(); n != 0 {
			err = errors.Join(err, fmt.Errorf("%d writes without a policy", n))
		}
		return err
	}, err
}

// writeCounter is a transport that counts writes.
type writeCounter struct {
	next   http.RoundTripper
	writes *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c writeCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}

func runCollector(config *rest.Config) (func() int, func() error, error) {
	o := inprocess.Options(config)
	o.Companion = *companionMode
	collector, stop, err := inprocess.RunCollector(o)
	if err != nil {
		return nil, nil, err
	}
	return collector.Pending, stop, nil
}

// createTypes creates the custom types, and waits until they are served.
func createTypes(ctx context.Context, config *rest.Config) error {
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

const timeout = time.Minute

// collectMarker creates and collects a chain of objects, which a collector processes after
// all earlier events.
func (s *side) collectMarker(t *testing.T, p scriptNamespaces) {
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
	devtest.Eventually(t, timeout, func() error {
		list, err := s.client(configMap, p.first).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + last.GetName()})
		switch {
		case err != nil:
			return err
		case len(list.Items) != 0:
			return fmt.Errorf("%s: marker %s is not collected", s.name, last.GetName())
		}
		if n := s.pending(); n != 0 {
			return fmt.Errorf("%s has %d pending objects", s.name, n)
		}
		return nil
	})
}

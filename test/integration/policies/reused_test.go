package policies

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// reused are control planes for tests that start an operator of their own. Such tests use them one after
// another, since starting a control plane takes as much CPU time as most of these tests.
var reused struct {
	mu   sync.Mutex // covers idle
	idle []*devcluster.Cluster
}

// takeCluster returns a control plane without an operator and without Gleaner's custom resources. It is
// reset for the next test, or stopped if the test fails.
func takeCluster(t *testing.T) *devcluster.Cluster {
	t.Helper()
	cluster := idleCluster()
	if cluster == nil {
		if _, err := devcluster.Build(t.Context(), t.Output()); err != nil {
			t.Fatal(err)
		}
		var err error
		if cluster, err = devcluster.Start(t.Context(), devcluster.Options{Controllers: controllers}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // the last one: the operator has stopped
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
		defer cancel()
		if err := reset(ctx, cluster); err != nil {
			t.Errorf("reset: %v", err)
		}
		if t.Failed() {
			if err := cluster.Stop(); err != nil {
				t.Error(err)
			}
			return
		}
		reused.mu.Lock()
		defer reused.mu.Unlock()
		reused.idle = append(reused.idle, cluster)
	})
	return cluster
}

// idleCluster returns a control plane that no test uses; nil if there is none.
func idleCluster() *devcluster.Cluster {
	reused.mu.Lock()
	defer reused.mu.Unlock()
	n := len(reused.idle)
	if n == 0 {
		return nil
	}
	cluster := reused.idle[n-1]
	reused.idle = reused.idle[:n-1]
	return cluster
}

// stopReused stops the control planes, which no test uses any more.
func stopReused() error {
	var errs []error
	for _, cluster := range reused.idle {
		errs = append(errs, cluster.Stop())
	}
	return errors.Join(errs...)
}

// reset deletes Gleaner's custom resources and admission objects.
func reset(ctx context.Context, cluster *devcluster.Cluster) error {
	client, err := metadata.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return err
	}
	definitions, err := crds.Definitions()
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range definitions {
		of := schema.GroupVersionResource{Group: d.Spec.Group, Version: d.Spec.Versions[0].Name, Resource: d.Spec.Names.Plural}
		errs = append(errs, deleteAll(ctx, client.Resource(of)))
	}
	releaser := &release.Releaser{Metadata: client}
	objects, err := releaser.AdmissionObjects(ctx)
	errs = append(errs, err)
	for _, o := range objects {
		errs = append(errs, releaser.RemoveAdmissionObject(ctx, o))
	}
	return errors.Join(errs...)
}

// deleteAll deletes objects in all namespaces, whatever finalizers they have.
func deleteAll(ctx context.Context, client metadata.Getter) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, o := range list.Items {
		of := client.Namespace(o.Namespace)
		if len(o.Finalizers) != 0 {
			if _, err := of.Patch(ctx, o.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("release %s: %w", o.Name, err)
			}
		}
		if err := of.Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s: %w", o.Name, err)
		}
	}
	return nil
}

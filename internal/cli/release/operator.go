package release

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// stopTimeout limits how long the operator may take to end: its Pods have 30 seconds, and a lease that was not given up
// expires after 15.
const stopTimeout = 2 * time.Minute

// deployment returns the Deployment that --stop-operator names.
func (o *options) deployment() (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(o.stopOperator, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, exit.Usagef("--stop-operator %s: write NAMESPACE/NAME of the operator's Deployment, such as gleaner-system/gleaner", o.stopOperator)
	}
	if !o.allNamespaces() || o.finalizer != "" {
		return types.NamespacedName{}, exit.Usagef("--stop-operator requires --all, without -n and --finalizer: the operator works in all namespaces")
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// stop stops the operator, unless something would be lost or stay behind without it. It reports whether the operator was stopped.
func (s *releaseRun) stop(ctx context.Context) (bool, error) {
	deployment, err := s.deployment()
	if err != nil {
		return false, err
	}
	if err := s.checkStoppable(ctx); err != nil {
		return false, err
	}
	if confirmed, err := s.prompt().Confirm(fmt.Sprintf("Stop the operator, deployment %s?", deployment), "The operator was not stopped, and nothing was released."); err != nil || !confirmed {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := s.StopOperator(ctx, deployment); err != nil {
		return false, err
	}
	s.KeepTerminating = true // an object may be deleted at any time
	printer.Fprintf(s.out, "Stopped the operator. To start it again, with as many replicas as before: kubectl -n %s scale deployment %s --replicas=N\n", deployment.Namespace, deployment.Name)
	return true, s.checkStoppable(ctx) // again: an object may have been deleted in the meantime
}

// checkStoppable returns an error if there is work that only the operator can complete.
func (s *releaseRun) checkStoppable(ctx context.Context) error {
	for _, kind := range []struct {
		list             client.ObjectList
		singular, plural string
		resource         string
	}{
		{&v1alpha1.FinalizerList{}, "is 1 Finalizer", "are %d Finalizers", "finalizers.gleaner.dev --all-namespaces"},
		{&v1alpha1.ClusterFinalizerList{}, "is 1 ClusterFinalizer", "are %d ClusterFinalizers", "clusterfinalizers.gleaner.dev"},
	} {
		err := s.gleaner.List(ctx, kind.list)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue // not installed
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", kind.resource, err)
		}
		n, count := meta.LenList(kind.list), kind.singular
		if n == 0 {
			continue
		}
		if n > 1 {
			count = fmt.Sprintf(kind.plural, n)
		}
		return fmt.Errorf("there %s: without the operator, objects with its finalizer can't be deleted. While the operator is running, delete it, and wait until it is gone: kubectl delete %s --all",
			count, kind.resource)
	}
	held, err := s.search(ctx, release.Selection{})
	if err != nil {
		return err
	}
	var waiting []string
	for _, h := range held {
		if h.Terminating {
			waiting = append(waiting, strings.TrimPrefix(h.Namespace+"/", "/")+h.String())
		}
	}
	if len(waiting) != 0 {
		return fmt.Errorf("%s being deleted, and wait for a policy or for the archive, such as %s: if they are released now, what the policy decides is not done. Wait until they are gone; gleaner explain says what they wait for",
			printer.Count(len(waiting), "object is", "objects are"), waiting[0])
	}
	return nil
}

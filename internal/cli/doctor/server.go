package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// The first and the last minor version of Kubernetes 1 that passed the suites of "make test-versions", as those between
// them did: docs/install.md has the results.
const oldestTested, newestTested uint = 33, 37

func (p *checker) server(context.Context) []Finding {
	info, err := p.kube.Discovery().ServerVersion()
	if err != nil {
		return []Finding{problem("check --kubeconfig and that the server is running", "can't read the version of the API server: %v", err)}
	}
	v, err := version.ParseGeneric(info.GitVersion)
	switch {
	case err != nil: // of another kind of API server
	case v.Minor() < oldestTested:
		return []Finding{warning(fmt.Sprintf("upgrade it: Gleaner is tested with 1.%d and later", oldestTested), "the API server is Kubernetes %s", info.GitVersion)}
	case v.Minor() > newestTested:
		return []Finding{warning("see whether there is a newer version of Gleaner", "the API server is Kubernetes %s: this version of Gleaner was tested with 1.%d and earlier", info.GitVersion, newestTested)}
	}
	return ok("Kubernetes %s", info.GitVersion)
}

// Thresholds for clock differences. Times in HTTP headers have a resolution of one second.
const (
	maxClockSkew        = 5 * time.Second
	maxClockSkewProblem = time.Minute
)

// clock compares the clocks of this machine and the operator with that of the API server,
// which sets deletion timestamps.
func (p *checker) clock(ctx context.Context) []Finding {
	ahead, err := p.clockAhead(ctx)
	if err != nil {
		return []Finding{unknown("", "can't read the time of the API server: %v", err)}
	}
	var found []Finding
	if ahead.Abs() > maxClockSkew {
		found = append(found, warning("correct this machine's clock, which is used for the times in the output", "this machine's clock is %s", skewText(ahead)))
	}
	for _, h := range p.health {
		if h.Err != nil || h.ClockAhead == nil {
			continue
		}
		off := *h.ClockAhead + ahead
		if off.Abs() <= maxClockSkew {
			continue
		}
		f := warning("correct the clock of its node: state with times in the future is ignored, and deadlines are off by the difference",
			"the clock of %s is %s", h.Replica, skewText(off))
		if off.Abs() > maxClockSkewProblem {
			f.Severity = Problem
		}
		found = append(found, f)
	}
	return findingsOrOK(found, "clocks are within %s", maxClockSkew)
}

func skewText(ahead time.Duration) string {
	if ahead < 0 {
		return fmt.Sprintf("%s behind the API server's", roundSeconds(-ahead))
	}
	return fmt.Sprintf("%s ahead of the API server's", roundSeconds(ahead))
}

// clockAhead returns how far this machine's clock is ahead of the API server's.
func (p *checker) clockAhead(ctx context.Context) (time.Duration, error) {
	client, err := rest.HTTPClientFor(p.Config)
	if err != nil {
		return 0, err
	}
	base, _, err := rest.DefaultServerUrlFor(p.Config)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("/version").String(), nil)
	if err != nil {
		return 0, err
	}
	before := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	response.Body.Close()
	middle := before.Add(time.Since(before) / 2)
	there, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return 0, fmt.Errorf("read its date: %w", err)
	}
	return middle.Sub(there.Add(time.Second / 2)), nil
}

// garbageCollection sends a foreground deletion as a dry run: with
// --enable-garbage-collector=false, the API server ignores the propagation policy, so no
// collector can apply it.
func (p *checker) garbageCollection(ctx context.Context) []Finding {
	const every = "kube-root-ca.crt" // exists in every namespace
	namespace := metav1.NamespaceDefault
	answer, err := p.kube.CoreV1().RESTClient().Delete().Namespace(namespace).Resource("configmaps").Name(every).Body(&metav1.DeleteOptions{
		DryRun: []string{metav1.DryRunAll}, PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
	}).Do(ctx).Raw()
	switch {
	case apierrors.IsForbidden(err):
		return []Finding{unknown("use an account that is allowed to delete ConfigMaps in namespace "+namespace, "can't check whether the API server supports garbage collection: %v", err)}
	case err != nil:
		return []Finding{unknown("", "can't check whether the API server supports garbage collection: %v", err)}
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &o); err != nil {
		return []Finding{unknown("", "can't check whether the API server supports garbage collection: %v", err)}
	}
	if !slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents) {
		return []Finding{problem("start kube-apiserver with --enable-garbage-collector=true, which is its default",
			"kube-apiserver is running with --enable-garbage-collector=false: foreground and orphan deletions have no effect")}
	}
	return ok("kube-apiserver supports garbage collection")
}

// aggregatedAPIs checks for unavailable aggregated API servers: their objects can't be read, and
// unreadable owners are not considered absent.
func (p *checker) aggregatedAPIs(ctx context.Context) []Finding {
	list, err := p.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Finding{unknown("", "APIServices can't be listed: %v", err)}
	}
	var found []Finding
	for _, s := range list.Items {
		for _, c := range s.Status.Conditions {
			if c.Type == apiregistration.Available && c.Status != apiregistration.ConditionTrue {
				found = append(found, problem("fix its server, or delete the APIService: until then, namespaces can't be deleted, and objects with owners in that group are not collected",
					"APIService %s is not available: %s", s.Name, c.Message))
			}
		}
	}
	return findingsOrOK(found, "all %d are available", len(list.Items))
}

// withoutMigrator is how to start kube-controller-manager in primary mode.
const withoutMigrator = "start kube-controller-manager with --controllers=*,-garbage-collector-controller,-storage-version-migrator-controller"

// migration checks for the type on which kube-controller-manager panics if its garbage
// collector is disabled.
func (p *checker) migration(context.Context) []Finding {
	groups, err := p.kube.Discovery().ServerGroups()
	if err != nil {
		return []Finding{unknown("", "groups can't be discovered: %v", err)}
	}
	served := slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "storagemigration.k8s.io" })
	switch {
	case served && p.modeKnown && !p.setup.Companion:
		return []Finding{warning(withoutMigrator, "StorageVersionMigration is served: the first such object makes kube-controller-manager panic, "+
			"unless its storage-version-migrator-controller is disabled, which can't be checked")}
	case served && !p.modeKnown:
		return []Finding{warning("for primary mode, "+withoutMigrator, "StorageVersionMigration is served: the first such object makes "+
			"kube-controller-manager panic if its garbage collector is disabled but its storage-version-migrator-controller is not")}
	default:
		return ok("no conflict with StorageVersionMigration")
	}
}

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

// oldest is the first minor version of Kubernetes whose resourceVersions can be
// compared and that has mutating admission policies in v1.
var oldest = version.MustParseGeneric("1.36.0")

func (p *patient) server(context.Context) []Finding {
	info, err := p.kube.Discovery().ServerVersion()
	if err != nil {
		return []Finding{problem("check --kubeconfig and that the server is up", "the API server does not say its version: %v", err)}
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err == nil && v.LessThan(oldest) {
		return []Finding{warning("upgrade it: what Gleaner is tested with is "+oldest.String()+" and newer", "the API server is Kubernetes %s", info.GitVersion)}
	}
	return ok("Kubernetes %s", info.GitVersion)
}

// Bounds of how far clocks may be apart. HTTP has whole seconds.
const (
	apart    = 5 * time.Second
	farApart = time.Minute
)

// clock compares this machine's clock and the operator's with the API server's, in
// whose times deletions and deadlines are.
func (p *patient) clock(ctx context.Context) []Finding {
	ahead, err := p.ahead(ctx)
	if err != nil {
		return []Finding{unknown("", "the API server does not say its time: %v", err)}
	}
	var found []Finding
	if ahead.Abs() > apart {
		found = append(found, warning("set this machine's clock: times here are told by it", "this machine's clock is %s", direction(ahead)))
	}
	for _, h := range p.health {
		if h.Err != nil || h.Ahead == nil {
			continue
		}
		off := *h.Ahead + ahead
		if off.Abs() <= apart {
			continue
		}
		f := warning("set the clock of its node: what it remembers in times of the future counts for nothing, and deadlines are off by that",
			"the clock of %s is %s", h.Replica, direction(off))
		if off.Abs() > farApart {
			f.Severity = Problem
		}
		found = append(found, f)
	}
	return orOK(found, "clocks agree to within %s", apart)
}

func direction(ahead time.Duration) string {
	if ahead < 0 {
		return fmt.Sprintf("%s behind the API server's", rounded(-ahead))
	}
	return fmt.Sprintf("%s ahead of the API server's", rounded(ahead))
}

// ahead is how far this machine's clock is before the API server's.
func (p *patient) ahead(ctx context.Context) (time.Duration, error) {
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

// garbageCollection asks for a foreground deletion that is not carried out: with
// --enable-garbage-collector=false the API server makes nothing of the propagation
// policy, and no collector can tell what was asked for.
func (p *patient) garbageCollection(ctx context.Context) []Finding {
	const every = "kube-root-ca.crt" // is in each namespace
	namespace := metav1.NamespaceDefault
	answer, err := p.kube.CoreV1().RESTClient().Delete().Namespace(namespace).Resource("configmaps").Name(every).Body(&metav1.DeleteOptions{
		DryRun: []string{metav1.DryRunAll}, PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
	}).Do(ctx).Raw()
	switch {
	case apierrors.IsForbidden(err):
		return []Finding{unknown("ask as somebody who may delete ConfigMaps in namespace "+namespace, "whether the API server takes part in garbage collection: %v", err)}
	case err != nil:
		return []Finding{unknown("", "whether the API server takes part in garbage collection: %v", err)}
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &o); err != nil {
		return []Finding{unknown("", "whether the API server takes part in garbage collection: %v", err)}
	}
	if !slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents) {
		return []Finding{problem("start kube-apiserver with --enable-garbage-collector=true, which is its default",
			"kube-apiserver runs with --enable-garbage-collector=false: deletes in the foreground and orphaning leave no trace that any collector could act on")}
	}
	return ok("kube-apiserver takes part in it")
}

// services looks for aggregated API servers that don't answer: their objects can't
// be read, and what could not be read is not taken to be absent.
func (p *patient) services(ctx context.Context) []Finding {
	list, err := p.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Finding{unknown("", "APIServices can't be listed: %v", err)}
	}
	var found []Finding
	for _, s := range list.Items {
		for _, c := range s.Status.Conditions {
			if c.Type == apiregistration.Available && c.Status != apiregistration.ConditionTrue {
				found = append(found, problem("mend what serves it, or delete the APIService: until then namespaces can't go, nor objects with owners of that group",
					"APIService %s is not available: %s", s.Name, c.Message))
			}
		}
	}
	return orOK(found, "all %d are available", len(list.Items))
}

// withoutMigrator says how to start kube-controller-manager where Gleaner is the only collector.
const withoutMigrator = "start kube-controller-manager with --controllers=*,-garbage-collector-controller,-storage-version-migrator-controller"

// migration looks for the type that kube-controller-manager panics on when its
// collector is switched off.
func (p *patient) migration(context.Context) []Finding {
	groups, err := p.kube.Discovery().ServerGroups()
	if err != nil {
		return []Finding{unknown("", "groups can't be discovered: %v", err)}
	}
	served := slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "storagemigration.k8s.io" })
	switch {
	case served && p.mode && !p.setup.Companion:
		return []Finding{warning(withoutMigrator, "StorageVersionMigration is served: the first such object makes kube-controller-manager panic, "+
			"unless its storage-version-migrator-controller is switched off, which can't be seen from here")}
	case served && !p.mode:
		return []Finding{warning("if Gleaner is to be the only collector, "+withoutMigrator, "StorageVersionMigration is served: the first such object makes "+
			"kube-controller-manager panic if its garbage collector is switched off, and its storage-version-migrator-controller is not")}
	default:
		return ok("StorageVersionMigration does no harm")
	}
}

package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/catalog"
)

// responseTTL is how long a discovery response for one group version is reused.
const responseTTL = time.Second

// discoveryResponse is a discovery response for one group version.
type discoveryResponse struct {
	resources []string
	at        time.Time // of the request
}

// Serves reports whether a resource is served, by a live discovery request: the catalog
// can be as old as the interval. Callers with the same group version share one request
// within a second. A group version that discovery does not know serves nothing.
func (w *Watcher) Serves(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	gv := resource.GroupVersion()
	if l, ok := w.cached(gv); ok {
		return slices.Contains(l.resources, resource.Resource), nil
	}
	l, err := w.discoverVersion(ctx, gv)
	if ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		// The caller whose request was shared was canceled or timed out.
		l, err = w.discoverVersion(ctx, gv)
	}
	if err != nil {
		return false, fmt.Errorf("discover %s: %w", gv, err)
	}
	return slices.Contains(l.resources, resource.Resource), nil
}

// Absent reports whether no version of its group serves a kind, by a live discovery
// request. A kind that the catalog lacks may have been missing from a single response. If
// an expected version of the group is not served, Absent returns an error: its kinds are
// unknown.
func (w *Watcher) Absent(ctx context.Context, gk schema.GroupKind) (bool, error) {
	named := map[string]struct{}{}
	versions, err := w.versions(ctx, gk.Group)
	if err != nil {
		return false, fmt.Errorf("discover group %s: %w", gk.Group, err)
	}
	for _, version := range versions {
		list, err := w.discovery.ServerResourcesForGroupVersionWithContext(ctx, version)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return false, fmt.Errorf("discover %s: %w", version, err)
		}
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == gk.Kind }) {
			return false, nil
		}
		named[version] = struct{}{}
	}
	return w.verifyExpected(ctx, gk.Group, named)
}

// versions returns the versions of a group, by a live discovery request for that group: the
// list of all groups is a hundred times as long. A group that is not served has none.
func (w *Watcher) versions(ctx context.Context, group string) ([]string, error) {
	if group == "" {
		return []string{"v1"}, nil
	}
	var served metav1.APIGroup
	err := w.discovery.RESTClient().Get().AbsPath("/apis", group).Do(ctx).Into(&served)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case served.Name != group || len(served.Versions) == 0:
		return nil, fmt.Errorf("response is about group %q with %d versions", served.Name, len(served.Versions))
	}
	versions := make([]string, 0, len(served.Versions))
	for _, v := range served.Versions {
		versions = append(versions, v.GroupVersion)
	}
	return versions, nil
}

// VerifyEmpty checks, by a live discovery request, a group version for which discovery has
// failed. It returns nil if none of its types is collected: some API servers serve a group
// version without types, which discovery counts as a failure.
func (w *Watcher) VerifyEmpty(ctx context.Context, gv schema.GroupVersion) error {
	list, err := w.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if err != nil {
		return fmt.Errorf("discover %s: %w", gv, err)
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") && catalog.Collectable(r.Verbs) {
			return fmt.Errorf("%s is served, but not watched yet", gv.WithResource(r.Name).GroupResource())
		}
	}
	return nil
}

// verifyExpected returns true if discovery has returned all expected versions of a group.
func (w *Watcher) verifyExpected(ctx context.Context, group string, named map[string]struct{}) (bool, error) {
	if w.options.APIServices == nil {
		return true, nil
	}
	services, err := w.options.APIServices(ctx)
	if err != nil {
		return false, err
	}
	for gv := range services.Expected {
		if _, is := named[gv.String()]; gv.Group == group && !is {
			return false, fmt.Errorf("discover %s: %w", gv, errMissing)
		}
	}
	return true, nil
}

func (w *Watcher) discoverVersion(ctx context.Context, gv schema.GroupVersion) (discoveryResponse, error) {
	value, err, _ := w.calls.Do(gv.String(), func() (any, error) {
		l := discoveryResponse{at: time.Now()}
		list, err := w.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return discoveryResponse{}, err
		default:
			l.resources = resourceNames(list)
		}
		w.cache(gv, l)
		return l, nil
	})
	if err != nil {
		return discoveryResponse{}, err
	}
	return value.(discoveryResponse), nil
}

func resourceNames(list *metav1.APIResourceList) []string {
	names := make([]string, 0, len(list.APIResources))
	for i := range list.APIResources {
		names = append(names, list.APIResources[i].Name)
	}
	return names
}

func (w *Watcher) cached(gv schema.GroupVersion) (discoveryResponse, bool) {
	w.responsesMu.Lock()
	defer w.responsesMu.Unlock()
	l, ok := w.responses[gv]
	return l, ok && time.Since(l.at) <= responseTTL
}

// cache caches a response, and removes expired ones.
func (w *Watcher) cache(gv schema.GroupVersion, l discoveryResponse) {
	w.responsesMu.Lock()
	defer w.responsesMu.Unlock()
	maps.DeleteFunc(w.responses, func(_ schema.GroupVersion, l discoveryResponse) bool { return time.Since(l.at) > responseTTL })
	w.responses[gv] = l
}

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

// listedFor is how long the answer about one group and version is reused.
const listedFor = time.Second

// listed is what discovery said of one group and version.
type listed struct {
	resources []string
	at        time.Time // when it was asked
}

// Serves asks discovery whether a resource is served, live: what Catalog says
// of it can be as old as the interval. Callers that ask about the same group
// and version within a second share one request. A group or version that
// discovery doesn't know serves nothing.
func (w *Watcher) Serves(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	gv := resource.GroupVersion()
	if l, ok := w.recent(gv); ok {
		return slices.Contains(l.resources, resource.Resource), nil
	}
	l, err := w.ask(ctx, gv)
	if ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		// The one whose request was shared has gone away, or was out of time.
		l, err = w.ask(ctx, gv)
	}
	if err != nil {
		return false, fmt.Errorf("discover %s: %w", gv, err)
	}
	return slices.Contains(l.resources, resource.Resource), nil
}

// Absent asks discovery whether a kind is served by no version of its group,
// live. One that the catalog lacks may have been missing from a single answer. That a
// version of the group is not served which has to be is an error: nobody knows then
// what there is of it.
func (w *Watcher) Absent(ctx context.Context, gk schema.GroupKind) (bool, error) {
	named := map[string]struct{}{}
	groups, err := w.discovery.ServerGroupsWithContext(ctx)
	if err != nil {
		return false, fmt.Errorf("discover groups: %w", err)
	}
	for _, group := range groups.Groups {
		if group.Name != gk.Group {
			continue
		}
		for _, version := range group.Versions {
			list, err := w.discovery.ServerResourcesForGroupVersionWithContext(ctx, version.GroupVersion)
			switch {
			case apierrors.IsNotFound(err):
				continue
			case err != nil:
				return false, fmt.Errorf("discover %s: %w", version.GroupVersion, err)
			}
			if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == gk.Kind }) {
				return false, nil
			}
			named[version.GroupVersion] = struct{}{}
		}
	}
	return w.noneMissing(ctx, gk.Group, named)
}

// Empty asks discovery, live, about a group version that is in no catalog, since
// discovery has failed for it. It returns nil if none of its types is collected: some API
// servers serve a group version without types, and discovery counts that as a failure.
func (w *Watcher) Empty(ctx context.Context, gv schema.GroupVersion) error {
	list, err := w.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if err != nil {
		return fmt.Errorf("discover %s: %w", gv, err)
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") && catalog.Collectable(r.Verbs) {
			return fmt.Errorf("%s is served, and not watched yet", gv.WithResource(r.Name).GroupResource())
		}
	}
	return nil
}

// noneMissing reports true if all versions of a group have been named that there have
// to be.
func (w *Watcher) noneMissing(ctx context.Context, group string, named map[string]struct{}) (bool, error) {
	if w.options.APIServices == nil {
		return true, nil
	}
	services, err := w.options.APIServices(ctx)
	if err != nil {
		return false, err
	}
	for gv := range services.Promised {
		if _, is := named[gv.String()]; gv.Group == group && !is {
			return false, fmt.Errorf("discover %s: %w", gv, errUnserved)
		}
	}
	return true, nil
}

func (w *Watcher) ask(ctx context.Context, gv schema.GroupVersion) (listed, error) {
	answer, err, _ := w.calls.Do(gv.String(), func() (any, error) {
		l := listed{at: time.Now()}
		list, err := w.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return listed{}, err
		default:
			l.resources = resourceNames(list)
		}
		w.remember(gv, l)
		return l, nil
	})
	if err != nil {
		return listed{}, err
	}
	return answer.(listed), nil
}

func resourceNames(list *metav1.APIResourceList) []string {
	names := make([]string, 0, len(list.APIResources))
	for i := range list.APIResources {
		names = append(names, list.APIResources[i].Name)
	}
	return names
}

func (w *Watcher) recent(gv schema.GroupVersion) (listed, bool) {
	w.listMu.Lock()
	defer w.listMu.Unlock()
	l, ok := w.lists[gv]
	return l, ok && time.Since(l.at) <= listedFor
}

// remember keeps an answer, and drops those that are too old by now.
func (w *Watcher) remember(gv schema.GroupVersion, l listed) {
	w.listMu.Lock()
	defer w.listMu.Unlock()
	maps.DeleteFunc(w.lists, func(_ schema.GroupVersion, l listed) bool { return time.Since(l.at) > listedFor })
	w.lists[gv] = l
}

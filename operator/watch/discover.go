package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// discover runs discovery once and watches the types found. It reports whether discovery
// succeeded, at least partially (G-04).
func (w *Watcher) discover(ctx context.Context) bool {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, w.discovery)
	if ctx.Err() != nil {
		return false
	}
	if noResources(lists) {
		// An API server that is starting or stopping can respond like this. It never
		// means that all types are gone (G-03).
		w.failures.Add(1)
		if w.discoveryState.changed("all") {
			w.options.Log.Error(errors.Join(errNoResources, err), "Discovery failed, keeping existing watches")
		}
		return false
	}
	old := w.catalog.Load()
	services, known := w.services(ctx)
	missing := missingVersions(lists, services, known, old)
	failed := w.failedVersions(err, missing)
	found := catalog.Build(groups, lists, catalog.Settings{
		Ignored: w.options.Ignored, Local: services.Local, Failed: failed, Previous: old,
	})
	w.catalog.Store(found)
	w.reconcile(ctx, found)
	if !found.Equal(old) {
		w.changed(found, old)
	}
	return len(missing) == 0
}

var errMissing = errors.New("missing from discovery, but not known to be removed")

// missingVersions returns the group versions that are missing from discovery but not known to be
// removed: an API server that has just started does not serve all of them yet.
func missingVersions(lists []*metav1.APIResourceList, services Services, known bool, old *catalog.Catalog) []schema.GroupVersion {
	named := map[string]struct{}{}
	for _, list := range lists {
		if list != nil && len(list.APIResources) != 0 {
			named[list.GroupVersion] = struct{}{}
		}
	}
	expected := services.Expected
	if !known {
		expected = map[schema.GroupVersion]bool{}
		for _, r := range old.Collected() {
			expected[r.Version.GroupVersion()] = true
		}
	}
	var missing []schema.GroupVersion
	for gv := range expected {
		if _, is := named[gv.String()]; !is {
			missing = append(missing, gv)
		}
	}
	return missing
}

// failedVersions returns the group versions for which discovery failed, or which are
// missing from it. If an error names no group version, the types found are complete
// (G-05).
func (w *Watcher) failedVersions(err error, missing []schema.GroupVersion) map[schema.GroupVersion]error {
	if err == nil && len(missing) == 0 {
		if w.discoveryState.changed("") {
			w.options.Log.Info("Discovery recovered")
		}
		return nil
	}
	w.failures.Add(1)
	failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	if failed == nil {
		failed = map[schema.GroupVersion]error{}
	}
	for _, gv := range missing {
		if failed[gv] == nil {
			failed[gv] = errMissing
		}
	}
	if err == nil {
		err = errMissing
	}
	versions := make([]string, 0, len(failed))
	for gv := range failed {
		versions = append(versions, gv.String())
	}
	slices.Sort(versions)
	if w.discoveryState.changed("some " + strings.Join(versions, " ")) {
		w.options.Log.Info("Discovery failed for some group versions", "versions", versions, "cause", err.Error())
	}
	return failed
}

// changeLogger is a state that is logged only when it changes.
type changeLogger struct{ last string }

// changed reports whether the state has changed. The initial state is "", without problems.
func (n *changeLogger) changed(state string) bool {
	changed := n.last != state
	n.last = state
	return changed
}

var errNoResources = errors.New("discovery returned no resources")

// noResources reports whether the lists contain no resources.
func noResources(lists []*metav1.APIResourceList) bool {
	for _, list := range lists {
		if list != nil && len(list.APIResources) != 0 {
			return false
		}
	}
	return true
}

// services returns the API services, and whether they could be read. Watching continues
// if not.
func (w *Watcher) services(ctx context.Context) (s Services, ok bool) {
	if w.options.APIServices == nil {
		return Services{}, true
	}
	s, err := w.options.APIServices(ctx)
	if err != nil {
		if w.servicesState.changed("failing") {
			w.options.Log.Info("Reading API services failed: no type counts as served by kube-apiserver itself, and none as removed", "cause", err.Error())
		}
		return Services{}, false
	}
	if w.servicesState.changed("") {
		w.options.Log.Info("Reading API services recovered")
	}
	return s, true
}

func (w *Watcher) changed(found, old *catalog.Catalog) {
	if added, removed := found.Diff(old); len(added) != 0 || len(removed) != 0 {
		w.options.Log.Info("Types changed", "added", names(added), "removed", names(removed))
	}
	if w.options.OnChange != nil {
		w.options.OnChange(found)
	}
}

func names(resources []catalog.Resource) []string {
	list := make([]string, 0, len(resources))
	for _, r := range resources {
		list = append(list, fmt.Sprintf("%s.%s", r.Version.GroupResource(), r.Version.Version))
	}
	return list
}

// reconcile starts and stops watches to match the catalog (G-07). A type that became
// stale keeps its watch if it has synced; otherwise it would only fail against an API
// server that is known to be unavailable (G-04).
func (w *Watcher) reconcile(ctx context.Context, found *catalog.Catalog) {
	wanted := map[schema.GroupKind]catalog.Resource{}
	for _, r := range found.Collected() {
		if r.Stale && !w.synced(r) {
			continue
		}
		wanted[r.GroupKind()] = r
	}
	before := maps.Clone(w.monitors) // only this goroutine writes it
	w.stop(func(m *monitor) bool { return wanted[m.resource.GroupKind()].Version != m.resource.Version },
		func(m *monitor) {
			if _, elsewhere := wanted[m.resource.GroupKind()]; !elsewhere {
				w.options.Sink.Apply(graph.TypeGone{Kind: m.resource.GroupKind()})
			}
		})
	w.mu.Lock()
	defer w.mu.Unlock()
	for gk, r := range wanted {
		if m, running := w.monitors[gk]; running {
			m.setResource(r)
			m.logIfOverdue(w.options.Interval)
			continue
		}
		_, known := before[gk] // in another version
		w.monitors[gk] = w.start(ctx, r, !known)
	}
}

// synced reports whether a type is watched in this version and has synced.
func (w *Watcher) synced(r catalog.Resource) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, running := w.monitors[r.GroupKind()]
	return running && m.resource.Version == r.Version && m.state().Synced
}

// stop ends the watches that which selects, concurrently, and calls stopped for each when
// it delivers no more events.
func (w *Watcher) stop(selected func(*monitor) bool, stopped func(*monitor)) {
	var wait sync.WaitGroup
	defer wait.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for gk, m := range w.monitors {
		if !selected(m) {
			continue
		}
		delete(w.monitors, gk)
		m.cancel()
		wait.Go(func() {
			<-m.done
			stopped(m)
		})
	}
}

// stopAll ends all watches on shutdown, without events that their types are gone.
func (w *Watcher) stopAll() {
	w.stop(func(*monitor) bool { return true }, func(*monitor) {})
}

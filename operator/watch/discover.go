package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// discover looks for types once and watches what it found. It reports whether
// discovery answered; a partial answer is one (G-04).
func (w *Watcher) discover(ctx context.Context) bool {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, w.discovery)
	if ctx.Err() != nil {
		return false
	}
	if none(lists) {
		// An API server that starts or stops can answer so. That all types
		// were really gone is out of the question (G-03).
		w.failures.Add(1)
		if w.discoveryNews.tell("all") {
			w.options.Log.Error(errors.Join(errNothing, err), "Looking for types failed, the watches go on as they are")
		}
		return false
	}
	old := w.catalog.Load()
	services, told := w.services(ctx)
	missing := unserved(lists, services, told, old)
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

var errUnserved = errors.New("discovery does not name it, and it has not been taken away")

// unserved are the group versions of which discovery says nothing, and which are not
// known to be gone: a part of what an API server serves comes after it has started.
func unserved(lists []*metav1.APIResourceList, services Services, told bool, old *catalog.Catalog) []schema.GroupVersion {
	named := map[string]struct{}{}
	for _, list := range lists {
		if list != nil && len(list.APIResources) != 0 {
			named[list.GroupVersion] = struct{}{}
		}
	}
	expected := services.Promised
	if !told {
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

// failedVersions returns the group versions that discovery could not ask about, or
// should have named. After an error that names none, what was found is all there is
// (G-05).
func (w *Watcher) failedVersions(err error, missing []schema.GroupVersion) map[schema.GroupVersion]error {
	if err == nil && len(missing) == 0 {
		if w.discoveryNews.tell("") {
			w.options.Log.Info("Looking for types works again")
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
			failed[gv] = errUnserved
		}
	}
	if err == nil {
		err = errUnserved
	}
	versions := make([]string, 0, len(failed))
	for gv := range failed {
		versions = append(versions, gv.String())
	}
	slices.Sort(versions)
	if w.discoveryNews.tell("some " + strings.Join(versions, " ")) {
		w.options.Log.Info("Looking for types failed in part", "versions", versions, "cause", err.Error())
	}
	return failed
}

// news is a state of affairs that is logged when it changes, not each time it
// is found to be so.
type news struct{ last string }

// tell reports whether the state is another than last time. The first state is
// "", when all is well.
func (n *news) tell(state string) bool {
	changed := n.last != state
	n.last = state
	return changed
}

var errNothing = errors.New("discovery names no resource")

// none reports whether no resource is in the lists at all.
func none(lists []*metav1.APIResourceList) bool {
	for _, list := range lists {
		if list != nil && len(list.APIResources) != 0 {
			return false
		}
	}
	return true
}

// services returns the API services, and whether they could be read. That they can't
// be is no reason not to watch.
func (w *Watcher) services(ctx context.Context) (s Services, told bool) {
	if w.options.APIServices == nil {
		return Services{}, true
	}
	s, err := w.options.APIServices(ctx)
	if err != nil {
		if w.localNews.tell("failing") {
			w.options.Log.Info("API services can't be read, so no type counts as served by kube-apiserver itself, and none as gone", "cause", err.Error())
		}
		return Services{}, false
	}
	if w.localNews.tell("") {
		w.options.Log.Info("API services can be read again")
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

// reconcile makes the set of watches that of the catalog (G-07). A type that
// went stale keeps the watch that has synced; one that has not would only fail
// against an API server that is known to be out of order (G-04).
func (w *Watcher) reconcile(ctx context.Context, found *catalog.Catalog) {
	wanted := map[schema.GroupKind]catalog.Resource{}
	for _, r := range found.Collected() {
		if r.Stale && !w.synced(r) {
			continue
		}
		wanted[r.GroupKind()] = r
	}
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
			m.describe(r)
			m.overdue(w.options.Interval)
			continue
		}
		w.monitors[gk] = w.start(ctx, r)
	}
}

// synced reports whether a type is watched by this version and has synced.
func (w *Watcher) synced(r catalog.Resource) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, running := w.monitors[r.GroupKind()]
	return running && m.resource.Version == r.Version && m.state().Synced
}

// stop ends the watches that which picks out, all at the same time, and calls
// stopped for each when nothing can come of it any more.
func (w *Watcher) stop(which func(*monitor) bool, stopped func(*monitor)) {
	var wait sync.WaitGroup
	defer wait.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for gk, m := range w.monitors {
		if !which(m) {
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

// stopAll ends all watches. It says nothing of their types: what is shutting
// down has not learnt that they are gone.
func (w *Watcher) stopAll() {
	w.stop(func(*monitor) bool { return true }, func(*monitor) {})
}

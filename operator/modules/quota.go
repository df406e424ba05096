package modules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// Quota bounds the modules that are fetched and compiled. 0 is no limit.
type Quota struct {
	Modules             int   // in the cluster, those of namespaces included
	ModulesPerNamespace int   // PolicyModules in one namespace
	Size                int64 // bytes of all modules in the cluster, decompressed
	SizePerNamespace    int64 // bytes of the PolicyModules in one namespace, decompressed
}

// quotaItem is a module, as far as a quota is concerned.
type quotaItem struct {
	uid             types.UID
	namespace, name string // no namespace: a ClusterPolicyModule
	created         time.Time
	size            int64                // bytes; 0: not known yet
	configMap       types.NamespacedName // that it comes from, if it does
}

// excess is why a module is beyond a quota. The zero excess is none.
type excess struct {
	message string
	count   bool // of modules, and so whatever its size is
}

// exceeding returns the modules that are beyond the quota. Cluster modules count first,
// so that no tenant can have them left out; then the oldest do, and of those of one age
// the first by name. A module that is left out takes nothing of what is left for others.
func (q Quota) exceeding(items []quotaItem) map[types.UID]excess {
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b quotaItem) int {
		return cmp.Or(cmpBool(a.namespace != "", b.namespace != ""), a.created.Compare(b.created),
			cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	type used struct {
		modules int
		size    int64
	}
	var cluster used
	namespaces, beyond := map[string]used{}, map[types.UID]excess{}
	for _, item := range items {
		own := namespaces[item.namespace]
		var why excess
		switch {
		case item.namespace != "" && q.ModulesPerNamespace > 0 && own.modules >= q.ModulesPerNamespace:
			why = excess{fmt.Sprintf("namespace %s has %d older PolicyModules (--max-modules-per-namespace): delete some that are not used",
				item.namespace, own.modules), true}
		case q.Modules > 0 && cluster.modules >= q.Modules:
			why = excess{fmt.Sprintf("the cluster has %d modules that come first (--max-modules): delete some that are not used", cluster.modules), true}
		case item.namespace != "" && q.SizePerNamespace > 0 && item.size > q.SizePerNamespace-own.size:
			why = excess{message: fmt.Sprintf("it has %d bytes, and the older PolicyModules of namespace %s leave %d of %d "+
				"(--max-modules-size-per-namespace): make it smaller, or delete some that are not used", item.size, item.namespace, q.SizePerNamespace-own.size, q.SizePerNamespace)}
		case q.Size > 0 && item.size > q.Size-cluster.size:
			why = excess{message: fmt.Sprintf("it has %d bytes, and the modules that come first leave %d of %d (--max-modules-size): "+
				"make it smaller, or delete some that are not used", item.size, q.Size-cluster.size, q.Size)}
		}
		if why != (excess{}) {
			beyond[item.uid] = why
			continue
		}
		cluster.modules, cluster.size = cluster.modules+1, cluster.size+item.size
		namespaces[item.namespace] = used{own.modules + 1, own.size + item.size}
	}
	return beyond
}

// cmpBool puts false first.
func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// sizeKey is what the size of a module is remembered by: another generation may have
// another size.
type sizeKey struct {
	uid        types.UID
	generation int64
}

// ledger applies a quota to the modules that there are. The size of a module is known once
// it was fetched; until then it counts by number alone. Its methods may be called
// concurrently.
type ledger struct {
	quota Quota

	mu    sync.Mutex // covers what follows
	items map[types.UID]quotaItem
	sizes map[sizeKey]int64 // bytes of modules that were fetched
}

func newLedger(q Quota) *ledger {
	return &ledger{quota: q, items: map[types.UID]quotaItem{}, sizes: map[sizeKey]int64{}}
}

// set says which modules there are that may be used at all, and returns those that are
// beyond the quota, by what is known of their sizes.
func (l *ledger) set(modules []*moduleState) map[types.UID]excess {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.items)
	there := map[sizeKey]bool{}
	for _, m := range modules {
		key := sizeKey{m.object.GetUID(), m.object.GetGeneration()}
		there[key] = true
		if m.problem.is() {
			continue
		}
		from, _ := m.resource().ConfigMap()
		l.items[key.uid] = quotaItem{
			uid: key.uid, namespace: m.key.Namespace, name: m.key.Name, created: m.object.GetCreationTimestamp().Time, size: l.sizes[key], configMap: from,
		}
	}
	maps.DeleteFunc(l.sizes, func(key sizeKey, _ int64) bool { return !there[key] })
	return l.exceeding()
}

// exceeding is for callers that hold mu.
func (l *ledger) exceeding() map[types.UID]excess {
	if l.quota == (Quota{}) {
		return nil
	}
	return l.quota.exceeding(slices.Collect(maps.Values(l.items)))
}

// learn notes the size of a module that was fetched, and returns why it is beyond the quota
// with that, if it is.
func (l *ledger) learn(key sizeKey, files []source.File) (excess, bool) {
	var size int64
	for _, f := range files {
		size += int64(len(f.Data))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	item, ok := l.items[key.uid]
	if !ok {
		return excess{}, false // it is gone by now, and its fetch is for nothing
	}
	item.size = size
	l.items[key.uid], l.sizes[key] = item, size
	why, is := l.exceeding()[key.uid]
	return why, is
}

// forget has the sizes of modules be unknown that come from a ConfigMap, which has changed,
// and reports whether one was known.
func (l *ledger) forget(configMap types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.sizes)
	maps.DeleteFunc(l.sizes, func(key sizeKey, _ int64) bool {
		item, ok := l.items[key.uid]
		return ok && item.configMap == configMap
	})
	return len(l.sizes) != before
}

// reasonQuota is why a module is not used that is beyond the quota.
const reasonQuota = "QuotaExceeded"

// excluded says why a module is neither fetched nor compiled. The zero problem is that it
// is.
func (k *Keeper) excluded(m *moduleState) problem {
	if k.options.DisableTenantModules && m.key.Namespace != "" {
		return problem{v1alpha1.ConditionFetched, "TenantModulesDisabled",
			"PolicyModules are disabled (--tenant-modules=false): use a ClusterPolicyModule, or fixed verdicts"}
	}
	return problem{}
}

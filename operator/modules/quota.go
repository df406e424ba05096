package modules

import (
	"cmp"
	"fmt"
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
	size            int64 // bytes; 0: not known yet
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

// ledger applies a quota while modules are loaded. Its methods may be called
// concurrently.
type ledger struct {
	quota Quota

	mu    sync.Mutex // covers what follows
	items map[types.UID]quotaItem
	sizes map[sizeKey]int64
}

// newLedger has those modules count that may be used at all, with the sizes that are known
// of them.
func newLedger(q Quota, modules []*moduleState, sizes map[sizeKey]int64) *ledger {
	l := &ledger{quota: q, items: map[types.UID]quotaItem{}, sizes: map[sizeKey]int64{}}
	for _, m := range modules {
		if m.problem.is() {
			continue
		}
		key := m.sizeKey()
		item := quotaItem{
			uid: key.uid, namespace: m.key.Namespace, name: m.key.Name, created: m.object.GetCreationTimestamp().Time, size: sizes[key],
		}
		l.items[key.uid] = item
		if size, known := sizes[key]; known {
			l.sizes[key] = size
		}
	}
	return l
}

func (m *moduleState) sizeKey() sizeKey {
	return sizeKey{m.object.GetUID(), m.object.GetGeneration()}
}

// learn notes the size of a module that was fetched.
func (l *ledger) learn(m *moduleState, files []source.File) {
	var size int64
	for _, f := range files {
		size += int64(len(f.Data))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	item := l.items[m.object.GetUID()]
	item.size = size
	l.items[item.uid], l.sizes[m.sizeKey()] = item, size
}

// all returns the modules that are beyond the quota, by what is known of their sizes.
func (l *ledger) all() map[types.UID]excess {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quota == (Quota{}) {
		return nil
	}
	items := make([]quotaItem, 0, len(l.items))
	for _, item := range l.items {
		items = append(items, item)
	}
	return l.quota.exceeding(items)
}

// refuse has a module not be used, and reports whether it is beyond the quota.
func (m *moduleState) refuse(why excess, is bool) bool {
	if is {
		m.compiled, m.fresh = nil, false
		m.problem = problem{v1alpha1.ConditionFetched, "QuotaExceeded", why.message}
	}
	return is
}

// settle refuses what was loaded before the sizes of all modules were known, and reports
// whether some module has to be looked at again, since what it was refused for is not the
// case.
func (l *ledger) settle(modules []*moduleState) (again bool) {
	beyond := l.all()
	for _, m := range modules {
		why, is := beyond[m.object.GetUID()]
		again = again || !is && m.problem.reason == "QuotaExceeded"
		m.refuse(why, is)
	}
	return again
}

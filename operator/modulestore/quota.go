package modulestore

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Quota bounds the modules that are fetched and compiled. 0 is no limit.
type Quota struct {
	Modules             int   // in the cluster, including those of namespaces
	ModulesPerNamespace int   // PolicyModules in one namespace
	Size                int64 // bytes of all modules in the cluster, decompressed
	SizePerNamespace    int64 // bytes of the PolicyModules in one namespace, decompressed
}

// Reasons of an ExclusionError.
const (
	ReasonQuotaExceeded         = "QuotaExceeded"
	ReasonTenantModulesDisabled = "TenantModulesDisabled"
)

// ExclusionError is why a module is neither fetched nor compiled, although nothing is
// wrong with it.
type ExclusionError struct {
	Reason  string
	Message string // for the author
}

// Error implements error.
func (e *ExclusionError) Error() string { return e.Message }

// quotaItem is a module as a quota sees it.
type quotaItem struct {
	key     moduleKey
	created time.Time
	size    int64 // bytes; 0: not known yet
}

// exceeding returns the modules beyond the quota. Cluster-scoped modules count first, so
// that no tenant can exclude them; then the oldest do, and modules of the same age by
// name. An excluded module uses nothing of the quota.
func (q Quota) exceeding(items []quotaItem) map[moduleKey]*ExclusionError {
	if q == (Quota{}) {
		return nil
	}
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b quotaItem) int {
		return cmp.Or(cmpBool(a.key.ref.Namespace != "", b.key.ref.Namespace != ""), a.created.Compare(b.created),
			cmp.Compare(a.key.ref.Namespace, b.key.ref.Namespace), cmp.Compare(a.key.ref.Name, b.key.ref.Name))
	})
	var cluster usedQuota
	namespaces, beyond := map[string]usedQuota{}, map[moduleKey]*ExclusionError{}
	for _, item := range items {
		namespace := item.key.ref.Namespace
		if message := q.excess(item, cluster, namespaces[namespace]); message != "" {
			beyond[item.key] = &ExclusionError{Reason: ReasonQuotaExceeded, Message: message}
			continue
		}
		cluster = cluster.plus(item)
		namespaces[namespace] = namespaces[namespace].plus(item)
	}
	return beyond
}

// usedQuota is what some modules use of a quota.
type usedQuota struct {
	modules int
	size    int64 // bytes
}

func (u usedQuota) plus(item quotaItem) usedQuota {
	return usedQuota{u.modules + 1, u.size + item.size}
}

// excess returns why a module is beyond the quota, by what the cluster and its namespace
// use already; "" if it is not.
func (q Quota) excess(item quotaItem, cluster, own usedQuota) string {
	namespace := item.key.ref.Namespace
	switch {
	case namespace != "" && q.ModulesPerNamespace > 0 && own.modules >= q.ModulesPerNamespace:
		return fmt.Sprintf("namespace %s has %d older PolicyModules (--max-modules-per-namespace): delete some that are not used",
			namespace, own.modules)
	case q.Modules > 0 && cluster.modules >= q.Modules:
		return fmt.Sprintf("the cluster has %d modules that come first (--max-modules): delete some that are not used", cluster.modules)
	case namespace != "" && q.SizePerNamespace > 0 && item.size > q.SizePerNamespace-own.size:
		return fmt.Sprintf("it has %d bytes, and the older PolicyModules of namespace %s leave %d of %d "+
			"(--max-modules-size-per-namespace): make it smaller, or delete some that are not used", item.size, namespace, q.SizePerNamespace-own.size, q.SizePerNamespace)
	case q.Size > 0 && item.size > q.Size-cluster.size:
		return fmt.Sprintf("it has %d bytes, and the modules that come first leave %d of %d (--max-modules-size): "+
			"make it smaller, or delete some that are not used", item.size, q.Size-cluster.size, q.Size)
	default:
		return ""
	}
}

// cmpBool orders false before true.
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

// applyQuota excludes the modules beyond the quota, and loads those that are no longer
// beyond it; the caller holds mu.
func (s *Store) applyQuota(now time.Time) {
	items := make([]quotaItem, 0, len(s.modules))
	for key, m := range s.modules {
		if !s.disabled(key) {
			items = append(items, quotaItem{key: key, created: m.resource.Created, size: m.size})
		}
	}
	beyond := s.options.Quota.exceeding(items)
	for key, m := range s.modules {
		switch why := beyond[key]; {
		case s.disabled(key):
			s.exclude(m, &ExclusionError{ReasonTenantModulesDisabled,
				"PolicyModules are disabled (--tenant-modules=false): use a ClusterPolicyModule, or fixed verdicts"}, now)
		case why != nil:
			s.exclude(m, why, now)
		case m.excluded:
			m.excluded = false
			m.resetSource(now)
			s.publish()
			s.wakeLoop()
		}
	}
}

func (s *Store) disabled(key moduleKey) bool {
	return s.options.DisableTenantModules && key.ref.Namespace != ""
}

// exclude stops loading a module and frees its content; the caller holds mu.
func (s *Store) exclude(m *module, why *ExclusionError, now time.Time) {
	if !m.excluded {
		m.excluded = true
		m.stop()
		m.version++ // what is being loaded does not count
		s.releaseContent(m.ready)
		s.releaseContent(m.attempted)
		m.ready, m.attempted, m.failures = nil, nil, 0
	}
	s.setState(m, State{Phase: Failed, Step: Fetching, Err: why}, now)
}

// sized records the size of a module that was fetched, and reports whether it is within
// the quota.
func (s *Store) sized(m *module, version int, size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.removed || m.version != version {
		return false // it is no longer this content's turn
	}
	if m.size != size {
		m.size = size
		s.applyQuota(time.Now())
	}
	return !m.excluded
}

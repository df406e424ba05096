package loop

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/finalize"
)

// series are what the labels of metrics name that comes and goes: types, policies and
// finalizers. Their series go with them, or a cluster where such things are made all
// the time would have ever more.
type series struct{ kinds, policies, finalizers, limited sync.Map }

func note(in *sync.Map, name any) {
	if _, noted := in.Load(name); !noted {
		in.Store(name, nil)
	}
}

// forgetSeries drops the series of what is gone.
func (l *Loop) forgetSeries() {
	types := l.gatherer.Catalog()
	m := l.metrics
	forget(&m.series.kinds, func(gk schema.GroupKind) bool {
		_, served := types.Preferred(gk)
		return served
	}, func(gk schema.GroupKind) {
		labels := prometheus.Labels{"group": gk.Group, "kind": gk.Kind}
		m.decisions.DeletePartialMatch(labels)
		m.vetoes.DeletePartialMatch(labels)
	})
	if set := l.policiesInForce(); set != nil {
		there := map[string]bool{}
		for _, p := range set.All() {
			there[p.String()] = true
		}
		forget(&m.series.policies, func(name string) bool { return there[name] }, func(name string) {
			m.policies.DeletePartialMatch(prometheus.Labels{"policy": name})
		})
	}
	if l.finalizers == nil {
		return
	}
	serving := l.finalizers.All()
	l.forgetLimited(serving)
	forget(&m.series.finalizers, func(name string) bool {
		_, serves := serving[name]
		return serves
	}, func(name string) {
		labels := prometheus.Labels{"finalizer": name}
		m.intents.DeletePartialMatch(labels)
		m.released.DeletePartialMatch(labels)
	})
}

// forgetLimited drops the series of policies and finalizers that are gone.
func (l *Loop) forgetLimited(serving map[string]finalize.Progress) {
	set := l.policiesInForce()
	if set == nil {
		return
	}
	there := map[string]bool{}
	for _, p := range set.All() {
		there[p.String()] = true
	}
	forget(&l.metrics.series.limited, func(name string) bool {
		_, serves := serving[name]
		return serves || there[name]
	}, func(name string) {
		l.metrics.limited.DeletePartialMatch(prometheus.Labels{"policy": name})
	})
}

func forget[T any](in *sync.Map, there func(T) bool, drop func(T)) {
	in.Range(func(key, _ any) bool {
		if name := key.(T); !there(name) {
			in.Delete(key)
			drop(name)
		}
		return true
	})
}

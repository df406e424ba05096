package modules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// load fetches and compiles a module. If it can't be fetched again for now, the
// one that was stays.
func (k *Keeper) load(ctx context.Context, m *moduleState, l *ledger) {
	why, exceeds := l.all()[m.object.GetUID()]
	if m.problem.is() || (why.count || !m.local()) && m.refuse(why, exceeds) {
		return // of what is in the cluster, the size is looked at again
	}
	engine := v1alpha1.EngineWasm
	if m.spec.Rego != nil {
		engine = v1alpha1.EngineRego
	}
	if was, ok := k.fetchedBefore(m); ok && !k.due(m, was) {
		m.compiled, m.pinned = was.compiled, was.pinned
		return
	}
	if was, ok := k.before[m.object.GetUID()]; ok && was.compiled != nil && m.object.GetDeletionTimestamp() != nil {
		m.compiled, m.pinned = was.compiled, was.pinned // what it comes from may be gone already
		return
	}
	fetched, err := k.fetch(ctx, m)
	if err != nil {
		m.problem, m.temporary = problem{v1alpha1.ConditionFetched, "Failed", err.Error()}, true
		if fault := (*source.Error)(nil); errors.As(err, &fault) {
			m.problem.reason, m.temporary = string(fault.Reason), fault.Temporary
		}
		if was, ok := k.fetchedBefore(m); ok && m.temporary {
			m.compiled, m.pinned = was.compiled, was.pinned
			m.problem.message += "; until it can be had again, the module that was fetched before is asked"
		}
		return
	}
	l.learn(m, fetched.Files)
	if why, exceeds := l.all()[m.object.GetUID()]; m.refuse(why, exceeds) {
		return
	}
	m.pinned = fetched.Pinned
	m.compiled, err = k.engines.compile(ctx, engine, m.name(), fetched)
	if err != nil {
		message, blamed := blames(err)
		m.problem = problem{v1alpha1.ConditionCompiled, "DoesNotCompile", message}
		if !blamed {
			m.problem.reason, m.temporary = "NotCompiled", true
		}
		return
	}
	m.fresh = true
}

// atOnce is how many modules are fetched and compiled at the same time. One whose
// server is slow delays three others at most.
const atOnce = 4

// loadAll loads modules, as far as the quota allows. It reports whether some should be
// looked at again.
func (k *Keeper) loadAll(ctx context.Context, all []*moduleState) (again bool) {
	for _, m := range all {
		if k.options.DisableTenantModules && m.key.Namespace != "" {
			m.problem = problem{v1alpha1.ConditionFetched, "TenantModulesDisabled",
				"PolicyModules are disabled (--tenant-modules=false): use a ClusterPolicyModule, or fixed verdicts"}
		}
	}
	l := newLedger(k.options.Quota, all, k.sizes)
	var loading errgroup.Group
	loading.SetLimit(atOnce)
	for _, m := range all {
		loading.Go(func() error {
			k.load(ctx, m, l)
			return nil
		})
	}
	_ = loading.Wait() // what goes wrong is said of each module
	k.sizes = l.sizes
	return l.settle(all)
}

// local reports whether a module's content is in the cluster, where it costs little to
// read.
func (m *moduleState) local() bool {
	return m.spec.Rego != nil && m.spec.Rego.Image == "" || m.spec.Wasm != nil && m.spec.Wasm.ConfigMap != nil
}

// due reports whether a module is to be fetched again. What is in the cluster costs
// little to read. What is elsewhere, and pinned, can't have become anything else;
// the rest is asked for once in a while.
func (k *Keeper) due(m *moduleState, was fetchedBefore) bool {
	switch {
	case m.local():
		return true
	case was.pinned:
		return false
	default:
		return k.options.Now().Sub(was.at) >= refetch
	}
}

// fetchedBefore is what a module was compiled from at an earlier reading.
type fetchedBefore struct {
	generation int64
	compiled   *compiled
	pinned     bool
	at         time.Time
}

// fetchedBefore returns what the same generation of the module gave before.
func (k *Keeper) fetchedBefore(m *moduleState) (fetchedBefore, bool) {
	was, ok := k.before[m.object.GetUID()]
	return was, ok && was.generation == m.object.GetGeneration()
}

// forget drops what is kept of modules that are not there any more.
func (k *Keeper) forget(b *build) {
	there := map[types.UID]bool{}
	for _, m := range b.modules {
		there[m.object.GetUID()] = true
	}
	maps.DeleteFunc(k.before, func(uid types.UID, _ fetchedBefore) bool { return !there[uid] })
}

// fetch gets a module's files from where it says they are.
func (k *Keeper) fetch(ctx context.Context, m *moduleState) (source.Fetched, error) {
	if k.options.Given != nil {
		if files, given := k.options.Given(m.name()); given {
			m.given = true
			return source.Fetched{Files: files, Digest: source.Digest(files), Pinned: true}, nil
		}
	}
	s := source.Source{SHA256: m.spec.SHA256, Namespace: m.key.Namespace, Private: m.key.Namespace == ""}
	var configMap *v1alpha1.ConfigMapKeyReference
	var secrets []v1alpha1.SecretReference
	if r := m.spec.Rego; r != nil {
		s.Language, s.Image = source.Rego, string(r.Image)
		configMap, secrets = r.ConfigMap, r.PullSecrets
		if r.Inline != nil {
			s.Inline = *r.Inline
		}
	} else if w := m.spec.Wasm; w != nil {
		s.Language, s.Image, s.URL = source.Wasm, string(w.Image), w.URL
		configMap, secrets = w.ConfigMap, w.PullSecrets
	}
	if configMap != nil {
		read, err := k.configMap(ctx, m, *configMap)
		if err != nil {
			return source.Fetched{}, err
		}
		s.ConfigMap = read
	}
	for _, ref := range secrets {
		secret, err := k.pullSecret(ctx, m, ref)
		if err != nil {
			return source.Fetched{}, err
		}
		s.PullSecrets = append(s.PullSecrets, secret)
	}
	return k.fetcher.Fetch(ctx, s)
}

func (k *Keeper) configMap(ctx context.Context, m *moduleState, ref v1alpha1.ConfigMapKeyReference) (*source.ConfigMap, error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if m.key.Namespace != "" {
		key.Namespace = m.key.Namespace
	}
	m.configMap = &key // also while it is not there
	var o corev1.ConfigMap
	if err := k.source.Get(ctx, key, &o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &source.Error{Reason: source.NotFound, Message: fmt.Sprintf("there is no ConfigMap %s: create it, or name another", key)}
		}
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	return &source.ConfigMap{Name: key.String(), Key: ref.Key, Data: o.Data, BinaryData: o.BinaryData}, nil
}

func (k *Keeper) pullSecret(ctx context.Context, m *moduleState, ref v1alpha1.SecretReference) ([]byte, error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if m.key.Namespace != "" {
		key.Namespace = m.key.Namespace
	}
	var o corev1.Secret
	if err := k.source.Get(ctx, key, &o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &source.Error{Reason: source.BadPullSecret, Message: fmt.Sprintf("there is no Secret %s: create it, or name another in pullSecrets", key), Temporary: true}
		}
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	if o.Type != corev1.SecretTypeDockerConfigJson {
		return nil, &source.Error{Reason: source.BadPullSecret, Message: fmt.Sprintf(
			"Secret %s is of type %q: pull secrets are of type %s, as kubectl create secret docker-registry makes them", key, o.Type, corev1.SecretTypeDockerConfigJson)}
	}
	return o.Data[corev1.DockerConfigJsonKey], nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// pair is an owner, a Secret, and its dependent, a ConfigMap.
type pair struct {
	name             string
	owner, dependent types.UID
	held             bool // the owner was created with a hold
}

func (f companionBench) pairs(ctx context.Context, namespace string, n int) ([]pair, error) {
	made, prefix := make([]pair, n), "pair-"+rand.String(6)
	return made, forEach(ctx, n, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("%s-%d", prefix, i)
		owner, err := f.client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create owner: %w", err)
		}
		ref := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true)}
		dependent, err := f.client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(name, ref), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create dependent: %w", err)
		}
		made[i] = pair{name: name, owner: owner.UID, dependent: dependent.UID, held: slices.Contains(owner.Finalizers, graph.Hold)}
		return nil
	})
}

func (f companionBench) deleteOwner(ctx context.Context, namespace string, p pair, propagation metav1.DeletionPropagation) error {
	var o metav1.DeleteOptions
	if propagation != "" {
		o.PropagationPolicy = &propagation
	}
	return f.client.CoreV1().Secrets(namespace).Delete(ctx, p.name, o)
}

// pairWatcher follows the pairs of a namespace.
type pairWatcher struct {
	events chan watch.Event
	end    func()
	stays  bool // the dependents must stay
	done   map[types.UID]bool
}

func (f companionBench) watchPairs(ctx context.Context, namespace string, stays bool) (*pairWatcher, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	o := &pairWatcher{events: make(chan watch.Event), end: cancel, stays: stays, done: map[types.UID]bool{}}
	list, err := f.client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		cancel()
		return nil, err
	}
	from := metav1.ListOptions{ResourceVersion: list.ResourceVersion} // resourceVersions of all types are from one etcd
	owners, ownersErr := f.client.CoreV1().Secrets(namespace).Watch(ctx, from)
	dependents, dependentsErr := f.client.CoreV1().ConfigMaps(namespace).Watch(ctx, from)
	if err := errors.Join(ownersErr, dependentsErr); err != nil {
		cancel()
		return nil, err
	}
	for _, w := range []watch.Interface{owners, dependents} {
		go func() { // stopped by o.end
			defer w.Stop()
			for e := range w.ResultChan() {
				select {
				case o.events <- e:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return o, nil
}

// waitFor waits until these pairs are done.
func (o *pairWatcher) waitFor(ctx context.Context, uids ...types.UID) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for i, uid := range uids {
		for !o.done[uid] {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-timer.C:
				return fmt.Errorf("%d of %d done after %s", i, len(uids), timeout)
			case e := <-o.events:
				if err := o.record(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (o *pairWatcher) record(e watch.Event) error {
	object, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("watch: %v: %w", e.Object, err)
	}
	_, dependent := e.Object.(*corev1.ConfigMap)
	freed := dependent && e.Type == watch.Modified && len(object.GetOwnerReferences()) == 0
	switch {
	case !dependent || !o.stays:
		o.done[object.GetUID()] = e.Type == watch.Deleted
		if freed && !o.stays {
			return fmt.Errorf("%s was orphaned, and should have been deleted", object.GetName())
		}
	case e.Type == watch.Deleted:
		return fmt.Errorf("%s was deleted, and should have been orphaned", object.GetName())
	default:
		o.done[object.GetUID()] = o.done[object.GetUID()] || freed
	}
	return nil
}

// scenarioFigures are the figures of one scenario in one round.
type scenarioFigures struct {
	sequential, parallel usage     // for each pair
	delays               []float64 // ms, from the DELETE until the pair is done
	perSecond            float64   // owners deleted in parallel
}

// waitForWebhook waits until the API server has read the webhook and policies of a scenario.
func (f companionBench) waitForWebhook(ctx context.Context, c client.Client, gleaner *gleanerProcess, namespace string, a scenario) error {
	if a.policies != nil && !a.held {
		if err := until(ctx, func() error { return c.Get(ctx, client.ObjectKey{Name: "gleaner-veto"}, webhookConfiguration()) }); err != nil {
			return fmt.Errorf("wait for the webhook configuration: %w", err)
		}
	}
	return until(ctx, func() error {
		before, err := f.usage(ctx, gleaner)
		if err != nil {
			return err
		}
		pairs, err := f.pairs(ctx, namespace, 1)
		if err != nil {
			return err
		}
		o, err := f.watchPairs(ctx, namespace, a.orphaned)
		if err != nil {
			return err
		}
		defer o.end()
		if err := f.deleteOwner(ctx, namespace, pairs[0], a.policy); err != nil {
			return err
		}
		if err := o.waitFor(ctx, pairs[0].owner, pairs[0].dependent); err != nil {
			return err
		}
		after, err := f.usage(ctx, gleaner)
		if err == nil && (pairs[0].held != a.held || a.vetoed != (after.webhooks > before.webhooks)) {
			err = fmt.Errorf("API server does not apply the policies yet: hold: %t, webhook calls: %.0f", pairs[0].held, after.webhooks-before.webhooks)
		}
		return err
	})
}

func webhookConfiguration() client.Object { return &admissionv1.ValidatingWebhookConfiguration{} }

// deleteSequentially deletes owners sequentially.
func (f companionBench) deleteSequentially(ctx context.Context, gleaner *gleanerProcess, namespace string, a scenario, d *scenarioFigures) error {
	pairs, err := f.pairs(ctx, namespace, min(sequentialPairs, f.owners))
	if err != nil {
		return err
	}
	waitForEvents(len(pairs))
	o, err := f.watchPairs(ctx, namespace, a.orphaned)
	if err != nil {
		return err
	}
	defer o.end()
	d.sequential, err = f.measureUsage(ctx, gleaner, len(pairs), func() error {
		for _, p := range pairs {
			began := time.Now()
			if err := f.deleteOwner(ctx, namespace, p, a.policy); err != nil {
				return err
			}
			if err := o.waitFor(ctx, p.owner, p.dependent); err != nil {
				return err
			}
			d.delays = append(d.delays, float64((time.Since(began)-a.requestedWait).Microseconds())/1000)
		}
		return nil
	})
	return err
}

// deleteInParallel deletes owners as fast as the API server allows.
func (f companionBench) deleteInParallel(ctx context.Context, gleaner *gleanerProcess, namespace string, a scenario, d *scenarioFigures) error {
	pairs, err := f.pairs(ctx, namespace, f.owners)
	if err != nil {
		return err
	}
	waitForEvents(len(pairs))
	o, err := f.watchPairs(ctx, namespace, a.orphaned)
	if err != nil {
		return err
	}
	defer o.end()
	var all []types.UID
	for _, p := range pairs {
		all = append(all, p.owner, p.dependent)
	}
	d.parallel, err = f.measureUsage(ctx, gleaner, len(pairs), func() error {
		began := time.Now()
		deleting := make(chan error, 1)
		go func() {
			deleting <- forEach(ctx, len(pairs), func(ctx context.Context, i int) error { return f.deleteOwner(ctx, namespace, pairs[i], a.policy) })
		}()
		if err := o.waitFor(ctx, all...); err != nil {
			return err
		}
		d.perSecond = float64(len(pairs)) / time.Since(began).Seconds()
		return <-deleting
	})
	return err
}

// measureUsage returns the load of do on the API server for each of n pairs, including late
// writes.
func (f companionBench) measureUsage(ctx context.Context, gleaner *gleanerProcess, n int, do func() error) (usage, error) {
	before, err := f.usage(ctx, gleaner)
	if err != nil {
		return usage{}, err
	}
	if err := do(); err != nil {
		return usage{}, err
	}
	waitForEvents(n)
	after, err := f.usage(ctx, gleaner)
	used, of := after.minus(before), float64(n)
	return usage{used.calls / of, used.events / of, used.webhooks / of, used.gleaner / of}, err
}

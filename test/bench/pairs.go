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
	held             bool // the owner had a hold from the first
}

func (f *field) pairs(ctx context.Context, namespace string, n int) ([]pair, error) {
	made, prefix := make([]pair, n), "pair-"+rand.String(6)
	return made, each(ctx, n, func(ctx context.Context, i int) error {
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

func (f *field) deleteOwner(ctx context.Context, namespace string, p pair, asks metav1.DeletionPropagation) error {
	var o metav1.DeleteOptions
	if asks != "" {
		o.PropagationPolicy = &asks
	}
	return f.client.CoreV1().Secrets(namespace).Delete(ctx, p.name, o)
}

// outlook follows what becomes of the pairs of a namespace.
type outlook struct {
	events chan watch.Event
	end    func()
	stays  bool // the dependents are to
	done   map[types.UID]bool
}

func (f *field) lookOut(ctx context.Context, namespace string, stays bool) (*outlook, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	o := &outlook{events: make(chan watch.Event), end: cancel, stays: stays, done: map[types.UID]bool{}}
	list, err := f.client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		cancel()
		return nil, err
	}
	from := metav1.ListOptions{ResourceVersion: list.ResourceVersion} // those of all types are of one etcd
	owners, ownersErr := f.client.CoreV1().Secrets(namespace).Watch(ctx, from)
	dependents, dependentsErr := f.client.CoreV1().ConfigMaps(namespace).Watch(ctx, from)
	if err := errors.Join(ownersErr, dependentsErr); err != nil {
		cancel()
		return nil, err
	}
	for _, w := range []watch.Interface{owners, dependents} {
		go func() { // until o.end
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

// until waits until all is as it should be with these.
func (o *outlook) until(ctx context.Context, uids ...types.UID) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for i, uid := range uids {
		for !o.done[uid] {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-timeout.C:
				return fmt.Errorf("after %s %d of %d are done", patience, i, len(uids))
			case e := <-o.events:
				if err := o.note(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (o *outlook) note(e watch.Event) error {
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
			return fmt.Errorf("%s was let go by its owner, and was to follow it", object.GetName())
		}
	case e.Type == watch.Deleted:
		return fmt.Errorf("%s followed its owner, and was to stay", object.GetName())
	default:
		o.done[object.GetUID()] = o.done[object.GetUID()] || freed
	}
	return nil
}

// besides are the figures of one affair in one round.
type besides struct {
	inTurn, together usage     // for each pair
	delays           []float64 // ms, from the DELETE until the pair is as it should be
	perSecond        float64   // owners that are deleted at once
}

// inEffect waits until the API server, too, knows of an affair's policies.
func (f *field) inEffect(ctx context.Context, c client.Client, gleaner *ours, namespace string, a affair) error {
	if a.policies != nil && !a.held {
		if err := until(ctx, func() error { return c.Get(ctx, client.ObjectKey{Name: "gleaner-veto"}, vetoes()) }); err != nil {
			return fmt.Errorf("wait for the webhook's configuration: %w", err)
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
		o, err := f.lookOut(ctx, namespace, a.stays)
		if err != nil {
			return err
		}
		defer o.end()
		if err := f.deleteOwner(ctx, namespace, pairs[0], a.asks); err != nil {
			return err
		}
		if err := o.until(ctx, pairs[0].owner, pairs[0].dependent); err != nil {
			return err
		}
		after, err := f.usage(ctx, gleaner)
		if err == nil && (pairs[0].held != a.held || a.vetoed != (after.webhooks > before.webhooks)) {
			err = fmt.Errorf("the API server does not act by the policies yet: a hold: %t, webhooks: %.0f", pairs[0].held, after.webhooks-before.webhooks)
		}
		return err
	})
}

func vetoes() client.Object { return &admissionv1.ValidatingWebhookConfiguration{} }

// oneByOne deletes owners one after the other.
func (f *field) oneByOne(ctx context.Context, gleaner *ours, namespace string, a affair, d *besides) error {
	pairs, err := f.pairs(ctx, namespace, min(inTurn, f.owners))
	if err != nil {
		return err
	}
	settle(len(pairs))
	o, err := f.lookOut(ctx, namespace, a.stays)
	if err != nil {
		return err
	}
	defer o.end()
	d.inTurn, err = f.used(ctx, gleaner, len(pairs), func() error {
		for _, p := range pairs {
			began := time.Now()
			if err := f.deleteOwner(ctx, namespace, p, a.asks); err != nil {
				return err
			}
			if err := o.until(ctx, p.owner, p.dependent); err != nil {
				return err
			}
			d.delays = append(d.delays, float64((time.Since(began)-a.waits).Microseconds())/1000)
		}
		return nil
	})
	return err
}

// allAtOnce deletes owners as fast as the API server takes it.
func (f *field) allAtOnce(ctx context.Context, gleaner *ours, namespace string, a affair, d *besides) error {
	pairs, err := f.pairs(ctx, namespace, f.owners)
	if err != nil {
		return err
	}
	settle(len(pairs))
	o, err := f.lookOut(ctx, namespace, a.stays)
	if err != nil {
		return err
	}
	defer o.end()
	var all []types.UID
	for _, p := range pairs {
		all = append(all, p.owner, p.dependent)
	}
	d.together, err = f.used(ctx, gleaner, len(pairs), func() error {
		began := time.Now()
		deleting := make(chan error, 1)
		go func() {
			deleting <- each(ctx, len(pairs), func(ctx context.Context, i int) error { return f.deleteOwner(ctx, namespace, pairs[i], a.asks) })
		}()
		if err := o.until(ctx, all...); err != nil {
			return err
		}
		d.perSecond = float64(len(pairs)) / time.Since(began).Seconds()
		return <-deleting
	})
	return err
}

// used returns what do takes of the API server for each of n pairs, and what comes
// late of it.
func (f *field) used(ctx context.Context, gleaner *ours, n int, do func() error) (usage, error) {
	before, err := f.usage(ctx, gleaner)
	if err != nil {
		return usage{}, err
	}
	if err := do(); err != nil {
		return usage{}, err
	}
	settle(n)
	after, err := f.usage(ctx, gleaner)
	used, of := after.minus(before), float64(n)
	return usage{used.calls / of, used.events / of, used.webhooks / of, used.gleaner / of}, err
}

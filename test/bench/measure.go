package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const floorName = "a client itself"

// floor is a client that deletes or patches the same objects, and
// watches them like a collector: a collector cannot be faster with one call for each.
type floor struct {
	policy metav1.DeletionPropagation
	call   func(ctx context.Context, namespace, name string) error
}

// floors returns the lower bound for each policy.
func (f throughputBench) floors() []floor {
	return []floor{
		{metav1.DeletePropagationBackground, f.deleteOne},
		{metav1.DeletePropagationForeground, f.deleteOne},
		{metav1.DeletePropagationOrphan, f.patchOne},
	}
}

func (f throughputBench) deleteOne(ctx context.Context, namespace, name string) error {
	return f.client.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (f throughputBench) patchOne(ctx context.Context, namespace, name string) error {
	_, err := f.client.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType,
		[]byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
	return err
}

// measureFloor measures a floor.
func (f throughputBench) measureFloor(ctx context.Context, fl floor, objects int) (perSecond float64, err error) {
	namespace, err := f.namespace(ctx)
	if err != nil {
		return 0, err
	}
	owner, err := f.family(ctx, namespace, objects)
	if err != nil {
		return 0, err
	}
	took, err := f.measureDeletion(ctx, owner, objects, func(ctx context.Context) error {
		err := forEach(ctx, objects, func(ctx context.Context, i int) error {
			return fl.call(ctx, namespace, fmt.Sprintf("%s-%d", owner.Name, i))
		})
		if err != nil {
			return err
		}
		return f.deleteOne(ctx, namespace, owner.Name)
	})
	return float64(objects) / took.Seconds(), err
}

func rate(figure, budget string) string { return fmt.Sprintf("%s, objects/s, %s", figure, budget) }

var propagations = []metav1.DeletionPropagation{
	metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

// throughput measures how many objects a second a collector handles, and
// with how many calls.
func (f throughputBench) throughput(ctx context.Context, r *report, b budget) error {
	objects := f.objects
	if b.calls != 0 {
		objects = min(objects, 400) // at 13 objects/s, more would only take longer
	}
	rates, calls := map[string][]float64{}, map[string][]float64{}
	for range f.rounds {
		if err := f.throughputOfFloors(ctx, b, objects, rates); err != nil {
			return err
		}
		for _, c := range f.contenders {
			if err := f.throughputOf(ctx, c, b, objects, rates, calls); err != nil {
				return err
			}
		}
	}
	for _, policy := range propagations {
		for _, c := range f.contenders {
			figure, key := strings.ToLower(string(policy)), c.name()+string(policy)
			r.add(c.name(), rate(figure, b.name), median(rates[key]))
			r.add(c.name(), fmt.Sprintf("%s, API calls/object, %s", figure, b.name), median(calls[key]))
			if floors := rates[floorName+string(policy)]; len(floors) != 0 {
				r.add(floorName, rate(figure, b.name), median(floors))
			}
		}
	}
	return nil
}

// throughputOf measures each policy once.
func (f throughputBench) throughputOf(ctx context.Context, c contender, b budget, objects int, rates, calls map[string][]float64) error {
	return f.with(ctx, c, b, func() error {
		for _, policy := range propagations {
			perSecond, perObject, err := f.once(ctx, objects, policy)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.name(), policy, err)
			}
			progress("%s: %s, %s: %.0f objects/s", b.name, c.name(), policy, perSecond)
			key := c.name() + string(policy)
			rates[key], calls[key] = append(rates[key], perSecond), append(calls[key], perObject)
		}
		return nil
	})
}

// throughputOfFloors measures the floors in the same round as the contenders,
// since a control plane gets slower as it fills up.
func (f throughputBench) throughputOfFloors(ctx context.Context, b budget, objects int, rates map[string][]float64) error {
	if b.calls != 0 {
		return nil // limited by the budget
	}
	for _, fl := range f.floors() {
		perSecond, err := f.measureFloor(ctx, fl, objects)
		if err != nil {
			return err
		}
		key := floorName + string(fl.policy)
		rates[key] = append(rates[key], perSecond)
	}
	return nil
}

// throughputOfMany measures a background cascade of very many
// objects once.
func (f throughputBench) throughputOfMany(ctx context.Context, r *report, b budget) error {
	if f.large == 0 {
		return nil
	}
	figure := fmt.Sprintf("background of %d, objects/s, %s", f.large, b.name)
	perSecond, err := f.measureFloor(ctx, f.floors()[0], f.large)
	if err != nil {
		return err
	}
	r.add(floorName, figure, perSecond)
	for _, c := range f.contenders {
		err := f.with(ctx, c, b, func() error {
			perSecond, _, err := f.once(ctx, f.large, metav1.DeletePropagationBackground)
			progress("%s: %s, %d: %.0f objects/s", b.name, c.name(), f.large, perSecond)
			r.add(c.name(), figure, perSecond)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// once measures one collection.
func (f *testbed) once(ctx context.Context, objects int, policy metav1.DeletionPropagation) (perSecond, perObject float64, err error) {
	namespace, err := f.namespace(ctx)
	if err != nil {
		return 0, 0, err
	}
	before, err := f.calls(ctx)
	if err != nil {
		return 0, 0, err
	}
	took, err := f.collectFamily(ctx, namespace, objects, policy)
	if err != nil {
		return 0, 0, err
	}
	after, err := f.calls(ctx)
	return float64(objects) / took.Seconds(), (after - before) / float64(objects), err
}

// delays measures the time from an owner's removal to its dependent's, as seen by a
// client that watches, at rest and with unrelated updates.
func (f atRestBench) delays(ctx context.Context, r *report, b budget) error {
	const pairs, updates = 200, 500
	for _, c := range f.contenders {
		err := f.with(ctx, c, b, func() error {
			namespace, err := f.namespace(ctx)
			if err != nil {
				return err
			}
			if err := f.delay(ctx, r, c, namespace, pairs, "at rest"); err != nil {
				return err
			}
			busy, stop := context.WithCancel(ctx)
			before, err := cpu(c.pid())
			if err != nil {
				stop()
				return err
			}
			began, made := time.Now(), make(chan int, 1)
			go func() { made <- f.updates(busy, namespace, updates) }()
			err = f.delay(ctx, r, c, namespace, pairs, "with 500 updates/s")
			time.Sleep(max(0, 10*time.Second-time.Since(began)))
			stop()
			n := <-made
			after, cpuErr := cpu(c.pid())
			if err == nil {
				err = cpuErr
			}
			r.add(c.name(), "processor time, µs/unrelated event", float64((after-before).Microseconds())/float64(max(n, 1)))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f atRestBench) delay(ctx context.Context, r *report, c contender, namespace string, pairs int, when string) error {
	var took []float64
	for range pairs {
		d, err := f.collectFamily(ctx, namespace, 1, metav1.DeletePropagationBackground)
		if err != nil {
			return err
		}
		took = append(took, d.Seconds()*1000)
	}
	slices.Sort(took)
	r.add(c.name(), "delay p50, ms, "+when, took[len(took)/2])
	r.add(c.name(), "delay p99, ms, "+when, took[len(took)*99/100])
	return nil
}

// updates changes an object perSecond times a second until ctx ends, and
// returns the number of updates.
func (f atRestBench) updates(ctx context.Context, namespace string, perSecond int) int {
	maps := f.client.CoreV1().ConfigMaps(namespace)
	made := 0
	if _, err := maps.Create(ctx, configMap("busy"), metav1.CreateOptions{}); err != nil {
		return made
	}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return made
		case <-tick.C:
		}
		patch := fmt.Sprintf(`{"data":{"n":"%d"}}`, made)
		if _, err := maps.Patch(ctx, "busy", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
			made++
		}
	}
}

// settling is the time for a collector to become idle.
const settling = 15 * time.Second

// memory measures a collector's memory for many objects with
// 1 KiB of annotations each, and how long it takes to sync.
func (f atRestBench) memory(ctx context.Context, r *report, b budget) error {
	return f.memoryWith(ctx, r, b, f.large)
}

// million measures the same with very many objects, which takes a quarter of an hour and 15 GiB.
func (f atRestBench) million(ctx context.Context, r *report, b budget) error {
	return f.memoryWith(ctx, r, b, 1_000_000)
}

func (f atRestBench) memoryWith(ctx context.Context, r *report, b budget, objects int) error {
	if objects == 0 {
		return nil
	}
	empty := map[string]float64{}
	for _, c := range f.contenders {
		if err := f.with(ctx, c, b, func() (err error) {
			empty[c.name()], _, err = resident(c.pid())
			return err
		}); err != nil {
			return err
		}
	}
	if err := f.fill(ctx, objects); err != nil {
		return err
	}
	for _, c := range f.contenders {
		began := time.Now()
		if err := f.with(ctx, c, b, func() error {
			synced := time.Since(began)
			now, peak, err := resident(c.pid())
			if err != nil {
				return err
			}
			of := fmt.Sprintf(" with %d objects", objects)
			r.add(c.name(), "seconds from start to collecting"+of, synced.Seconds())
			r.add(c.name(), "resident memory growth, MiB,"+of, now-empty[c.name()])
			r.add(c.name(), "peak resident memory, MiB,"+of, peak)
			time.Sleep(settling)
			later, _, err := resident(c.pid())
			r.add(c.name(), fmt.Sprintf("the same growth %.0f s later,%s", settling.Seconds(), of), later-empty[c.name()])
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// fill creates objects until there is a large number of them.
func (f *testbed) fill(ctx context.Context, objects int) error {
	missing := objects - f.filled
	if missing <= 0 {
		return nil
	}
	f.filled = objects
	progress("creating %d objects", missing)
	namespace, err := f.namespace(ctx)
	if err != nil {
		return err
	}
	annotation := strings.Repeat("x", 1024)
	return forEach(ctx, missing, func(ctx context.Context, i int) error {
		o := configMap(fmt.Sprintf("object-%d", i))
		o.Annotations = map[string]string{"padding": annotation}
		_, err := f.client.CoreV1().ConfigMaps(namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

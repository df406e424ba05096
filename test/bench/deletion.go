package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deletion is the cost of deleting objects with a finalizer by one
// call.
type deletion struct {
	seconds float64 // until the last was gone
	marked  float64 // seconds until the API server had marked all for deletion
	calls   float64 // API calls for each object, without events
	events  float64 // written, for each object
	cpu     float64 // of the server of the finalizer, ms for each object
	peak    float64 // resident memory of the server, MiB, since its start
	growth  float64 // growth of the peak by the deletion, MiB

	backlog float64 // objects/s, if all are marked before the server starts
	alone   float64 // seconds until all are marked in that case
}

// deletionUnder measures one deletion.
func (f finalizerBench) deletionUnder(ctx context.Context, c client.Client, s *fakeServer, v serving, b budget) (d deletion, err error) {
	err = f.serve(ctx, c, v, b, func(begin func() error) error {
		if err := begin(); err != nil {
			return err
		}
		if _, err := f.deletion(ctx, v.by, 1); err != nil { // waits until it is running
			return err
		}
		before := s.requests.Load()
		if d, err = f.deletion(ctx, v.by, f.finalized); err != nil {
			return err
		}
		if sent := s.requests.Load() - before; v.sends && sent != int64(f.finalized) {
			progress("%s: %d requests for %d objects", v.name, sent, f.finalized)
		}
		return nil
	})
	return d, err
}

// measureBacklog measures how many objects a second are released if all are marked for
// deletion before the server starts. From the first to the last: the time to start
// is a figure of its own.
func (f finalizerBench) measureBacklog(ctx context.Context, c client.Client, v serving, b budget, d *deletion) error {
	namespace, err := f.withFinalizers(ctx, f.finalized, benchFinalizer)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f.deleteCollection(ctx, namespace); err != nil {
		return err
	}
	d.alone = time.Since(began).Seconds()
	waitForEvents(f.finalized)
	return f.serve(ctx, c, v, b, func(begin func() error) error {
		first, last, err := f.follow(ctx, namespace, f.finalized, isGone, begin)
		d.backlog = float64(f.finalized-1) / (last - first)
		return err
	})
}

// deletion creates n objects with the finalizer, deletes them by one call, and waits
// until they are gone.
func (f finalizerBench) deletion(ctx context.Context, by contender, n int) (d deletion, err error) {
	namespace, err := f.withFinalizers(ctx, n, benchFinalizer)
	if err != nil {
		return d, err
	}
	before, err := f.gauge(ctx, by.pid())
	if err != nil {
		return d, err
	}
	if err := resetPeak(by.pid()); err != nil {
		return d, err
	}
	d.seconds, d.marked, err = f.deleteAll(ctx, namespace, n)
	if err != nil {
		return d, err
	}
	waitForEvents(n) // include late writes
	after, err := f.gauge(ctx, by.pid())
	if err != nil {
		return d, err
	}
	of := float64(n)
	d.calls, d.events, d.cpu = (after.calls-before.calls)/of, (after.events-before.events)/of, (after.cpu-before.cpu).Seconds()*1000/of
	d.peak, d.growth = max(before.peak, after.peak), max(0, after.peak-before.resident)
	return d, nil
}

// waitForEvents waits until all watches have received all events.
func waitForEvents(n int) {
	if n > 1 {
		time.Sleep(time.Second)
	}
}

// withFinalizers creates n objects in a new namespace.
func (f finalizerBench) withFinalizers(ctx context.Context, n int, finalizers ...string) (namespace string, err error) {
	if namespace, err = f.namespace(ctx); err != nil {
		return "", err
	}
	err = forEach(ctx, n, func(ctx context.Context, i int) error {
		o := configMap(fmt.Sprintf("object-%d", i))
		o.Finalizers = finalizers
		_, err := f.client.CoreV1().ConfigMaps(namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	waitForEvents(n)
	return namespace, err
}

func isGone(e watch.Event) bool { return e.Type == watch.Deleted }

func (f finalizerBench) deleteCollection(ctx context.Context, namespace string) error {
	return f.client.CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// deleteAll deletes the n objects of a namespace by one call. It returns the seconds
// until they were gone, and until the call returned.
func (f finalizerBench) deleteAll(ctx context.Context, namespace string, n int) (seconds, marked float64, err error) {
	_, seconds, err = f.follow(ctx, namespace, n, isGone, func() error {
		began := time.Now()
		err := f.deleteCollection(ctx, namespace)
		marked = time.Since(began).Seconds()
		return err
	})
	return seconds, marked, err
}

// follow returns the seconds from the start of do until a client that watches a
// namespace has seen a matching event of the first of n objects, and of the last.
func (f finalizerBench) follow(ctx context.Context, namespace string, n int, is func(watch.Event) bool, do func() error) (first, last float64, err error) {
	maps := f.client.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, 0, err
	}
	watching, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return 0, 0, err
	}
	defer watching.Stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	doing := make(chan error, 1)
	go func() { doing <- do() }()
	seen := map[types.UID]bool{}
	for len(seen) < n {
		select {
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("%d of %d are done: %w", len(seen), n, ctx.Err())
		case e, open := <-watching.ResultChan():
			o, ok := e.Object.(*corev1.ConfigMap)
			if !open || !ok {
				return 0, 0, fmt.Errorf("the watch ended after %d of %d: %v", len(seen), n, e.Object)
			}
			if !is(e) || seen[o.UID] {
				continue
			}
			seen[o.UID], last = true, time.Since(began).Seconds()
			if len(seen) == 1 {
				first = last
			}
		}
	}
	return first, last, <-doing
}

// gauge is the resource usage so far.
type gauge struct {
	calls, events  float64 // API calls
	resident, peak float64 // MiB
	cpu            time.Duration
}

// gauge reads the usage of a process, and of all clients of the API server, except watches
// and this program's own calls.
func (f finalizerBench) gauge(ctx context.Context, pid int) (g gauge, err error) {
	if g.resident, g.peak, err = resident(pid); err != nil {
		return g, err
	}
	if g.cpu, err = cpu(pid); err != nil {
		return g, err
	}
	isEvent := func(line string) bool { return strings.Contains(line, `,resource="events"`) }
	if g.events, err = f.requests(ctx, isEvent); err != nil {
		return g, err
	}
	g.calls, err = f.requests(ctx, func(line string) bool {
		for _, other := range []string{`verb="WATCH"`, `verb="DELETECOLLECTION"`, `,resource=""`, `,resource="leases"`} {
			if strings.Contains(line, other) {
				return false
			}
		}
		return !isEvent(line)
	})
	return g, err
}

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster"
)

const (
	workers = 20
	timeout = 15 * time.Minute
)

// testbed is a control plane on which contenders run in turn.
type testbed struct {
	settings
	cluster    *devcluster.Cluster
	config     *rest.Config
	client     kubernetes.Interface
	contenders []contender
	filled     int // objects for measuring memory that there are
}

// The parts of the benchmark, each with its own measurements on the same testbed.
type (
	throughputBench struct{ *testbed } // cascades
	policyBench     struct{ *testbed } // cascades under policies
	finalizerBench  struct{ *testbed } // objects with a finalizer
	companionBench  struct{ *testbed } // owners in companion mode
	loadBench       struct{ *testbed } // many policies and modules
	archiveBench    struct{ *testbed } // cascades that are archived, and their restoration
	atRestBench     struct{ *testbed } // single deletions, and memory
)

func newTestbed(cluster *devcluster.Cluster, s settings) (*testbed, error) {
	config, err := cluster.ConfigFor("bench", "system:masters") // objects that Gleaner's own user creates get no holds
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &testbed{settings: s, cluster: cluster, config: config, client: client, contenders: []contender{
		&upstream{cluster: cluster}, &gleanerProcess{cluster: cluster, binary: s.binary, pprof: s.pprof},
	}}, nil
}

// with runs a contender while do runs, which is called once it collects.
func (f *testbed) with(ctx context.Context, c contender, b budget, do func() error) error {
	if err := c.start(ctx, b); err != nil {
		return fmt.Errorf("start %s: %w", c.name(), err)
	}
	err := f.waitUntilCollecting(ctx, c)
	if err == nil {
		err = do()
	}
	if stopped := c.stop(); err == nil {
		err = stopped
	}
	return err
}

// waitUntilCollecting waits until a contender is synced and has collected an object.
func (f *testbed) waitUntilCollecting(ctx context.Context, c contender) error {
	if err := f.isSynced(ctx, c); err != nil {
		return err
	}
	n, err := f.namespace(ctx)
	if err != nil {
		return err
	}
	_, err = f.collectFamily(ctx, n, 1, metav1.DeletePropagationBackground)
	return err
}

func (f *testbed) isSynced(ctx context.Context, c contender) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for ok := false; !ok; {
		var err error
		if ok, err = c.synced(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", c.name(), ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (f *testbed) namespace(ctx context.Context) (string, error) {
	n, err := f.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create namespace: %w", err)
	}
	return n.Name, nil
}

// forEach calls do for 0 to n-1, with as many workers as the collectors have.
func forEach(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range workers {
		group.Go(func() error {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := do(ctx, int(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func configMap(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
}

// family creates an owner with n dependents that block its deletion.
func (f *testbed) family(ctx context.Context, namespace string, n int) (owner *corev1.ConfigMap, err error) {
	return f.labeledFamily(ctx, namespace, n, func(int) map[string]string { return nil })
}

// labeledFamily is like family, with labels on the dependents.
func (f *testbed) labeledFamily(ctx context.Context, namespace string, n int, labels func(int) map[string]string) (owner *corev1.ConfigMap, err error) {
	maps := f.client.CoreV1().ConfigMaps(namespace)
	if owner, err = maps.Create(ctx, configMap("owner-"+rand.String(8)), metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create owner: %w", err)
	}
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true)}
	return owner, forEach(ctx, n, func(ctx context.Context, i int) error {
		o := configMap(fmt.Sprintf("%s-%d", owner.Name, i), ref)
		o.Labels = labels(i)
		_, err := maps.Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}

// collectFamily creates a family, deletes its owner and returns how long it took until
// the propagation policy was carried out.
func (f *testbed) collectFamily(ctx context.Context, namespace string, n int, policy metav1.DeletionPropagation) (time.Duration, error) {
	owner, err := f.family(ctx, namespace, n)
	if err != nil {
		return 0, err
	}
	return f.deleteFamily(ctx, owner, n, policy)
}

// deleteFamily deletes the owner of a family, and returns how long it took until
// the propagation policy was carried out.
func (f *testbed) deleteFamily(ctx context.Context, owner *corev1.ConfigMap, n int, policy metav1.DeletionPropagation) (time.Duration, error) {
	return f.measureDeletion(ctx, owner, n, func(ctx context.Context) error {
		return f.client.CoreV1().ConfigMaps(owner.Namespace).Delete(ctx, owner.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
	})
}

// measureDeletion returns the time from the start of do until a client that
// watches has seen that an owner is gone and its n dependents are gone or orphaned.
func (f *testbed) measureDeletion(ctx context.Context, owner *corev1.ConfigMap, n int, do func(context.Context) error) (time.Duration, error) {
	if n > 1 {
		time.Sleep(time.Second) // until all watches have it: the collector must be idle
	}
	maps := f.client.CoreV1().ConfigMaps(owner.Namespace)
	list, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	watching, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return 0, err
	}
	defer watching.Stop()
	began := time.Now()
	doing := make(chan error, 1)
	go func() { doing <- do(ctx) }()
	if err := waitForFamily(ctx, watching, owner, n); err != nil {
		return 0, err
	}
	return time.Since(began), <-doing
}

// waitForFamily follows a watch until an owner is gone and its n dependents are gone
// or orphaned.
func waitForFamily(ctx context.Context, watching watch.Interface, owner *corev1.ConfigMap, n int) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	left, ownerGone := map[types.UID]bool{}, false
	done := 0
	for done < n || !ownerGone {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return fmt.Errorf("after %s %d of %d are done", timeout, done, n)
		case e, open := <-watching.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended after %d of %d", done, n)
			}
			o, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				return fmt.Errorf("watch: %v", e.Object)
			}
			finished := e.Type == watch.Deleted || e.Type == watch.Modified && len(o.OwnerReferences) == 0
			switch {
			case o.UID == owner.UID:
				ownerGone = ownerGone || e.Type == watch.Deleted
			case finished && strings.HasPrefix(o.Name, owner.Name) && !left[o.UID]:
				left[o.UID] = true
				done++
			}
		}
	}
	return nil
}

// calls reads how many requests with the verbs that collectors use the API
// server has served.
func (f *testbed) calls(ctx context.Context) (float64, error) {
	return f.requests(ctx, func(line string) bool {
		return strings.Contains(line, `resource="configmaps"`) && !strings.Contains(line, `verb="WATCH"`) && !strings.Contains(line, `verb="POST"`)
	})
}

// requests reads how many requests the API server has served, of those whose
// line in its metrics matches.
func (f *testbed) requests(ctx context.Context, counts func(line string) bool) (float64, error) {
	content, err := f.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return sum(content, "apiserver_request_total{", counts)
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

package kubelet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// deletions are the names of what is deleted with a fake client.
type deletions struct {
	mu      sync.Mutex // covers names
	names   []string
	deleted func(name string) // optional
}

func (d *deletions) react(action clienttesting.Action) (bool, runtime.Object, error) {
	name := action.(clienttesting.DeleteAction).GetName()
	d.mu.Lock()
	d.names = append(d.names, name)
	d.mu.Unlock()
	if d.deleted != nil {
		d.deleted(name)
	}
	return true, nil, nil
}

func (d *deletions) sorted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.names))
}

// randomJob returns a Job, some of which have finished long ago, or in the future.
func randomJob(r *rand.Rand, name string, now time.Time) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	if r.IntN(4) > 0 {
		j.Spec.TTLSecondsAfterFinished = ptr.To(int32(r.IntN(48)) * 1800) //nolint:gosec // small
	}
	if r.IntN(4) > 0 {
		finished := now.Add(-time.Duration(r.IntN(24*60))*time.Minute - 15*time.Minute)
		if r.IntN(10) == 0 {
			finished = now.Add(time.Hour)
		}
		j.Status.Conditions = []batchv1.JobCondition{{
			Type:   []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuspended}[r.IntN(3)],
			Status: []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[min(r.IntN(5), 1)^1], LastTransitionTime: metav1.NewTime(finished),
		}}
	}
	if r.IntN(10) == 0 {
		j.DeletionTimestamp, j.Finalizers = ptr.To(metav1.NewTime(now)), []string{"example.com/f"}
	}
	return j
}

// ofJobs returns what Gleaner removes of Jobs, sorted.
func ofJobs(jobs []*batchv1.Job, now time.Time) []string {
	in := retain.Input{Now: now}
	for _, j := range jobs {
		c := retain.Candidate{ID: j.Name, Use: retain.Unused, Terminating: j.DeletionTimestamp != nil}
		for _, condition := range j.Status.Conditions {
			if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
				c.IsFinished, c.Finished = true, condition.LastTransitionTime.Time
			}
		}
		if ttl := j.Spec.TTLSecondsAfterFinished; ttl != nil {
			c.TTL = ptr.To(time.Duration(*ttl) * time.Second)
		}
		in.Candidates = append(in.Candidates, c)
	}
	return slices.Sorted(slices.Values(removals(in)))
}

func TestP12_JobsAreRemovedAsByTheirController(t *testing.T) {
	r, now := rand.New(rand.NewPCG(9, 10)), time.Now() //nolint:gosec // reproducible
	var jobs []*batchv1.Job
	var objects []runtime.Object
	for n := range 1000 {
		j := randomJob(r, fmt.Sprintf("job-%d", n), now)
		jobs, objects = append(jobs, j), append(objects, j)
	}
	// The controller's only worker takes the Jobs in the order in which it sees them.
	last, done := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "last", UID: "last"}}, make(chan struct{})
	last.Spec.TTLSecondsAfterFinished = ptr.To(int32(0))
	last.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	deleted := &deletions{deleted: func(name string) {
		if name == last.Name {
			close(done)
		}
	}}
	client := fake.NewClientset(objects...)
	client.PrependReactor("delete", "jobs", deleted.react)
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Batch().V1().Jobs()
	controller := ttlafterfinished.New(ctx, informer, client)
	seen := make(chan struct{}, len(jobs)+1)
	registration, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(ctx)
	cache.WaitForCacheSync(t.Context().Done(), registration.HasSynced)
	var running sync.WaitGroup
	running.Go(func() { controller.Run(ctx, 1) })
	if _, err := client.BatchV1().Jobs("shop").Create(ctx, last, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the controller does not come to the last Job")
	}
	want := deleted.sorted()
	got := ofJobs(append(jobs, last), now)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("removals (-controller +Gleaner):\n%s", diff)
	}
	if len(got) < 100 {
		t.Errorf("%d Jobs were removed", len(got))
	}
}

// podInformer has Pods that never change, and counts how often they are listed.
type podInformer struct {
	cache.SharedIndexInformer
	corelisters.PodLister
	pods   []*corev1.Pod
	listed chan struct{}
}

func (p *podInformer) Informer() cache.SharedIndexInformer { return p }
func (p *podInformer) Lister() corelisters.PodLister       { return p }
func (p *podInformer) HasSynced() bool                     { return true }

// List implements PodLister.
func (p *podInformer) List(labels.Selector) ([]*corev1.Pod, error) {
	select {
	case p.listed <- struct{}{}:
	default: // more often than the test has to know
	}
	return slices.Clone(p.pods), nil
}

// nodeInformer has no nodes.
type nodeInformer struct {
	coreinformers.NodeInformer
	cache.SharedIndexInformer
	corelisters.NodeLister
}

func (n nodeInformer) Informer() cache.SharedIndexInformer          { return n }
func (n nodeInformer) Lister() corelisters.NodeLister               { return n }
func (n nodeInformer) HasSynced() bool                              { return true }
func (n nodeInformer) List(labels.Selector) ([]*corev1.Node, error) { return nil, nil }
func (n nodeInformer) GetIndexer() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
}

func randomPods(r *rand.Rand, now time.Time) (pods []*corev1.Pod) {
	for n := range r.IntN(12) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("pod-%d", n), UID: types.UID(fmt.Sprint(n))}}
		p.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(r.IntN(6)) * time.Hour)) // some at the same time
		p.Status.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed, corev1.PodRunning}[min(r.IntN(6)/2, 2)]
		if p.Status.Phase == corev1.PodFailed && r.IntN(2) == 0 {
			p.Status.Reason = "Evicted"
		}
		pods = append(pods, p)
	}
	return pods
}

// byPodGC returns what the controller removes, sorted.
func byPodGC(t *testing.T, pods []*corev1.Pod, threshold int) []string {
	t.Helper()
	client, deleted := fake.NewClientset(), &deletions{}
	client.PrependReactor("delete", "pods", deleted.react)
	informer := &podInformer{pods: pods, listed: make(chan struct{}, 2)}
	controller := podgc.NewPodGCInternal(klog.NewContext(t.Context(), klog.Logger{}), client, informer, nodeInformer{}, threshold, time.Millisecond, time.Hour)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { controller.Run(ctx) })
	<-informer.listed
	first := func() []string { <-informer.listed; return deleted.sorted() }() // the second run begins after the first one
	cancel()
	running.Wait()
	return slices.Compact(first)
}

// ofPods returns what Gleaner removes of Pods, sorted: those that were evicted go first.
func ofPods(pods []*corev1.Pod, threshold int, now time.Time) []string {
	in := retain.Input{Now: now, Rule: retain.Rule{MaxTotal: &threshold, Order: retain.ByCreation}}
	for _, p := range pods {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			continue
		}
		c := retain.Candidate{ID: p.Name, Use: retain.Unused, Created: p.CreationTimestamp.Time}
		if p.Status.Reason == "Evicted" {
			c.Priority = -1
		}
		in.Candidates = append(in.Candidates, c)
	}
	return slices.Sorted(slices.Values(removals(in)))
}

func TestP10_PodsAreRemovedAsByTheirController(t *testing.T) {
	r, now := rand.New(rand.NewPCG(11, 12)), time.Now() //nolint:gosec // reproducible
	total := 0
	for n := range 1000 {
		pods, threshold := randomPods(r, now), 1+r.IntN(6)
		got := ofPods(pods, threshold, now)
		if diff := cmp.Diff(byPodGC(t, pods, threshold), got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("state %d: removals above %d (-controller +Gleaner):\n%s\n%+v", n, threshold, diff, pods)
		}
		total += len(got)
	}
	if total < 1000 {
		t.Errorf("%d Pods were removed", total)
	}
}

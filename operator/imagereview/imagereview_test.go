package imagereview_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/imagereview"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/policies"
)

// world is an API server with nodes and workloads, and a Reviewer.
type world struct {
	*testing.T
	client client.Client
	set    *policies.Set
	slow   time.Duration // of each list of workloads

	mu        sync.Mutex // covers what follows
	answer    func(evaluate.Input) (evaluate.Result, error)
	asked     []evaluate.Input
	recorded  []imagereview.Outcome
	following bool
	workloads map[string][]string // manifests by resource
	lists     int
	reads     int   // of nodes
	failure   error // of lists of workloads
}

// governed has a policy with the hook retain that governs nodes.
var governed = policies.NewSet([]*policies.Policy{{
	Name: "images", Enforce: true, Hooks: []hostabi.Hook{hostabi.HookRetain}, Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{"nodes"}}},
}})

func newWorld(t *testing.T, answer func(evaluate.Input) (evaluate.Result, error)) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &world{
		T: t, answer: answer, set: governed,
		client: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ImageRemovalRequest{}).Build(),
	}
}

func (w *world) run() {
	verbs := metav1.Verbs{"list", "watch", "get", "patch", "delete"}
	types := catalog.Build(nil, []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "nodes", Kind: "Node", Verbs: verbs}}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: verbs}}},
		{GroupVersion: "batch/v1", APIResources: []metav1.APIResource{{Name: "cronjobs", Kind: "CronJob", Namespaced: true, Verbs: verbs}, {Name: "jobs", Kind: "Job", Namespaced: true, Verbs: verbs}}},
	}, catalog.Settings{})
	r := imagereview.New(imagereview.Options{
		Client: w.client, Absent: func(context.Context, schema.GroupKind) (bool, error) { return false, nil },
		Evaluator: w, Policies: func() *policies.Set { return w.set }, Graph: w, Types: func() *catalog.Catalog { return types }, Reader: w, Lister: w,
		Answers: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return !w.following },
		Record:  func(o imagereview.Outcome) { w.mu.Lock(); defer w.mu.Unlock(); w.recorded = append(w.recorded, o) },
		Now:     time.Now, Log: logr.Discard(),
	})
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
}

func (w *world) Evaluate(ctx context.Context, q evaluate.Input) (evaluate.Result, error) {
	w.mu.Lock()
	w.asked = append(w.asked, q)
	answer := w.answer
	w.mu.Unlock()
	if result, err := answer(q); err != nil || ctx.Err() == nil {
		return result, err
	}
	return evaluate.Result{}, ctx.Err()
}

func (*world) Lookup(graph.ID) (graph.View, bool) { return graph.View{}, false }

// Get implements modulecall.Reader. All nodes exist but the one called gone.
func (w *world) Get(_ context.Context, _ policies.ServiceAccount, r schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
	w.mu.Lock()
	w.reads++
	w.mu.Unlock()
	if strings.HasPrefix(name, "gone") {
		return nil, apierrors.NewNotFound(r.GroupResource(), name)
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "uid": "u-" + name}}}, nil
}

func (*world) Namespace(context.Context, string) (modulecall.Namespace, error) {
	return modulecall.Namespace{}, errors.New("a Node has no namespace")
}

// List implements follow.Lister.
func (w *world) List(ctx context.Context, r schema.GroupVersionResource, _, _ string, _, _ int) (page bulkread.Page, err error) {
	time.Sleep(w.slow)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	for _, manifest := range w.workloads[r.Resource] {
		data, err := yaml.YAMLToJSON([]byte(manifest))
		if err != nil {
			return page, err
		}
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(data, &o); err != nil {
			return page, err
		}
		page.Items = append(page.Items, bulkread.Item{Name: o.Name, JSON: data})
	}
	return page, errors.Join(w.failure, ctx.Err())
}

// request creates a request of a node, some time ago.
func (w *world) request(node string, ago time.Duration, names ...string) {
	w.Helper()
	name := node + "-1"
	if len(names) != 0 {
		name = names[0]
	}
	err := w.client.Create(w.Context(), &v1alpha1.ImageRemovalRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Now().Add(-ago))},
		Spec: v1alpha1.ImageRemovalRequestSpec{NodeName: node, Policy: "full", Limit: "Usage", Image: v1alpha1.NodeImage{
			ID: "sha256:a", Names: []string{"docker.io/library/web:1"}, Labels: map[string]v1alpha1.ImageLabel{"team": "shop"}, SizeBytes: 7, FirstSeen: metav1.NewTime(time.Now()),
		}},
	})
	if err != nil {
		w.Fatal(err)
	}
}

// answered returns the answer to the request of a node; nil if it is gone.
func (w *world) answered(node string) *v1alpha1.ImageRemovalRequestStatus {
	w.Helper()
	synctest.Wait()
	var q v1alpha1.ImageRemovalRequest
	err := w.client.Get(w.Context(), client.ObjectKey{Name: node + "-1"}, &q)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return &q.Status
}

func (w *world) expect(when, node string, want v1alpha1.ImageRemovalRequestStatus) {
	w.Helper()
	got := w.answered(node)
	if got == nil {
		w.Fatalf("%s: the request is gone", when)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		w.Errorf("%s: answer (-want +got):\n%s", when, diff)
	}
}

func saying(v hostabi.Verdict) func(evaluate.Input) (evaluate.Result, error) {
	return func(evaluate.Input) (evaluate.Result, error) {
		return evaluate.Result{Verdict: v, DecidedBy: &policies.Policy{Name: "images"}}, nil
	}
}

func TestReview_AnswersWhatPoliciesDecide(t *testing.T) {
	minute := v1alpha1.Duration("1m0s")
	for name, test := range map[string]struct {
		answer func(evaluate.Input) (evaluate.Result, error)
		want   v1alpha1.ImageRemovalRequestStatus
	}{
		"no policy decides": {
			func(evaluate.Input) (evaluate.Result, error) {
				return evaluate.Result{Verdict: hostabi.Verdict{Decision: hostabi.DecisionRemove}}, nil
			},
			v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageRemove},
		},
		"a policy removes it": {
			saying(hostabi.Verdict{Decision: hostabi.DecisionRemove, Reason: "old"}),
			v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageRemove, DecidedBy: "ClusterGCPolicy images", Reason: "old"},
		},
		"a policy keeps it": {
			saying(hostabi.Verdict{Decision: hostabi.DecisionKeep, Reason: "base"}),
			v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageKeep, DecidedBy: "ClusterGCPolicy images", Reason: "base", After: "10m0s"},
		},
		"a policy keeps it for a time": {
			saying(hostabi.Verdict{Decision: hostabi.DecisionKeep, After: hostabi.Duration(time.Hour)}),
			v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageKeep, DecidedBy: "ClusterGCPolicy images", After: "1h0m0s"},
		},
		"a policy can't be evaluated": {
			func(evaluate.Input) (evaluate.Result, error) {
				return evaluate.Result{Fault: errors.New("out of fuel"), DecidedBy: &policies.Policy{Name: "images"}}, nil
			},
			v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageKeep, DecidedBy: "ClusterGCPolicy images", Reason: "out of fuel", After: minute},
		},
		"there is no decision": {
			func(evaluate.Input) (evaluate.Result, error) { return evaluate.Result{}, nil },
			v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageKeep, After: "10m0s"},
		},
		"it can't be decided now": {
			func(evaluate.Input) (evaluate.Result, error) { return evaluate.Result{}, errors.New("no connection") },
			v1alpha1.ImageRemovalRequestStatus{},
		},
		"the node changes": {
			func(evaluate.Input) (evaluate.Result, error) { return evaluate.Result{Changed: &graph.Object{}}, nil },
			v1alpha1.ImageRemovalRequestStatus{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, test.answer)
				w.request("a", 0)
				w.run()
				w.expect("at once", "a", test.want)
				want := 0
				if test.want.Decision == v1alpha1.ImageKeep {
					want = 1
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.recorded) != want {
					t.Errorf("%d records, want %d", len(w.recorded), want)
				}
			})
		})
	}
}

func TestReview_PassesTheImageAndItsWorkloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, saying(hostabi.Verdict{Decision: hostabi.DecisionKeep}))
		template := "{metadata: {namespace: shop, name: %s%s}, spec: {%stemplate: {spec: {containers: [{name: c, image: %q}]}}%s}}"
		w.workloads = map[string][]string{
			"deployments": {fmt.Sprintf(template, "web", "", "", "web:1", ""), fmt.Sprintf(template, "other", "", "", "web:2", "")},
			"cronjobs":    {fmt.Sprintf(template, "nightly", "", "jobTemplate: {spec: {", "docker.io/library/web:1", "}}")},
			"jobs":        {fmt.Sprintf(template, "nightly-1", ", ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: u, controller: true}]", "", "web:1", "")},
		}
		began := time.Now()
		w.request("a", 0)
		w.request("b", 0)
		w.run()
		w.answered("a")
		w.mu.Lock()
		defer w.mu.Unlock()
		want := &hostabi.Image{
			ID: "sha256:a", Names: []string{"docker.io/library/web:1"}, Labels: map[string]string{"team": "shop"}, SizeBytes: 7, FirstSeen: began.UTC().Truncate(time.Second),
			Workloads: []hostabi.Workload{{APIVersion: "batch/v1", Kind: "CronJob", Namespace: "shop", Name: "nightly"}, {APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"}},
		}
		if len(w.asked) != 2 || w.lists != 3 {
			t.Fatalf("%d evaluations and %d lists; want 2, and one list of each kind for both", len(w.asked), w.lists)
		}
		for _, q := range w.asked {
			q.Image.Workloads = sorted(q.Image.Workloads)
			if diff := cmp.Diff(want, q.Image); diff != "" {
				t.Errorf("image (-want +got):\n%s", diff)
			}
			if q.Hook != hostabi.HookRetain || *q.Retention != (hostabi.Retention{Policy: "full", Limit: "Usage"}) || q.Object.GetKind() != "Node" {
				t.Errorf("asked %+v", q)
			}
		}
	})
}

func TestReview_WhatIsNotKnownHasNoAnswer(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"the workloads can't be listed": func(w *world) { w.failure = errors.New("no connection") },
		"the policies are not known":    func(w *world) { w.set = nil },
		"it does not lead":              func(w *world) { w.following = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, saying(hostabi.Verdict{Decision: hostabi.DecisionRemove}))
				prepare(w)
				w.request("a", 0)
				w.run()
				time.Sleep(time.Minute)
				w.expect("after a minute", "a", v1alpha1.ImageRemovalRequestStatus{})
				if len(w.asked) != 0 {
					t.Error("policies were evaluated")
				}
			})
		})
	}
}

func TestReview_WithoutPolicies_NoWorkloadIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, saying(hostabi.Verdict{Decision: hostabi.DecisionRemove}))
		w.set = policies.NewSet(nil)
		w.request("a", 0)
		w.run()
		if w.answered("a").Decision != v1alpha1.ImageRemove || w.lists != 0 {
			t.Errorf("%d lists", w.lists)
		}
	})
}

// Requests that can't be answered are not read again and again.
func TestReview_SeveralRequestsOfANodeThatIsGone_CostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, saying(hostabi.Verdict{Decision: hostabi.DecisionRemove}))
		w.request("gone", time.Minute)
		w.request("gone", 0, "gone-2")
		w.run()
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.reads == 0 || w.reads > 100 {
			t.Errorf("the node was read %d times in a minute", w.reads)
		}
	})
}

// A node waits 15 s for an answer.
func TestReview_ALargeCluster_IsListedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, saying(hostabi.Verdict{Decision: hostabi.DecisionRemove}))
		w.slow = 2500 * time.Millisecond
		w.request("a", 0)
		w.run()
		time.Sleep(15 * time.Second)
		w.expect("after 15 s", "a", v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageRemove, DecidedBy: "ClusterGCPolicy images"})
	})
}

// Many requests that can't be answered delay no other.
func TestReview_RequestsWithoutAnAnswer_DelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, saying(hostabi.Verdict{Decision: hostabi.DecisionRemove}))
		for i := range 20 {
			w.request(fmt.Sprint("gone", i), time.Minute)
		}
		w.request("a", 0)
		w.run()
		time.Sleep(5 * time.Second)
		if w.answered("a").Decision != v1alpha1.ImageRemove {
			t.Error("a has no answer after 5 s")
		}
	})
}

// What can't be answered keeps no other node waiting.
func TestReview_ANodeThatIsGone_DelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, saying(hostabi.Verdict{Decision: hostabi.DecisionRemove}))
		w.request("gone", time.Minute)
		for i := range 20 {
			w.request(fmt.Sprint("n", i), 0)
		}
		w.run()
		for i := range 20 {
			if w.answered(fmt.Sprint("n", i)).Decision != v1alpha1.ImageRemove {
				t.Errorf("n%d has no answer", i)
			}
		}
		w.expect("without its node", "gone", v1alpha1.ImageRemovalRequestStatus{})
		time.Sleep(11 * time.Minute)
		if w.answered("gone") != nil || w.answered("n1") != nil {
			t.Error("requests stay that their nodes have not deleted")
		}
	})
}

func sorted(list []hostabi.Workload) []hostabi.Workload {
	if len(list) == 2 && list[0].Kind > list[1].Kind {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

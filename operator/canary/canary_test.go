package canary_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/canary"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

// fakeAPI is a fake API server with at most one canary, with or without another garbage
// collector.
type fakeAPI struct {
	*fake.Clientset

	mu     sync.Mutex // covers what follows
	object *corev1.ConfigMap
	verbs  []string // requests, and calls of Own
	reads  int
	after  int // reads after which another collector finalizes the canary; 0 if there is none
	denied map[string]error
}

func newFakeAPI(after int) *fakeAPI {
	c := &fakeAPI{Clientset: fake.NewClientset(), after: after, denied: map[string]error{}}
	c.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if action.GetVerb() != "get" {
			c.verbs = append(c.verbs, action.GetVerb())
		}
		if err := c.denied[action.GetVerb()]; err != nil {
			return true, nil, err
		}
		o, err := c.react(action)
		if o == nil {
			return true, nil, err
		}
		return true, o.DeepCopy(), err
	})
	return c
}

func (c *fakeAPI) react(action clienttesting.Action) (*corev1.ConfigMap, error) {
	if create, ok := action.(clienttesting.CreateAction); ok && action.GetVerb() == "create" {
		c.object = create.GetObject().(*corev1.ConfigMap).DeepCopy()
		c.object.Name, c.object.UID, c.object.ResourceVersion = c.object.GenerateName+"x", "bird", "1"
		return c.object, nil
	}
	if c.object == nil {
		return nil, apierrors.NewNotFound(configMaps, "gleaner-canary-x")
	}
	switch action := action.(type) {
	case clienttesting.DeleteActionImpl:
		options := action.GetDeleteOptions()
		c.verbs[len(c.verbs)-1] += " " + string(ptr.Deref(options.PropagationPolicy, "")) + " " + string(ptr.Deref(options.Preconditions.UID, ""))
		c.object.DeletionTimestamp, c.object.Finalizers = &metav1.Time{}, []string{metav1.FinalizerDeleteDependents}
		return nil, nil
	case clienttesting.PatchActionImpl:
		c.verbs[len(c.verbs)-1] += " " + string(action.GetPatchType()) + " " + string(action.GetPatch())
		probe := c.object
		c.object = nil
		return probe, nil
	}
	if c.reads++; c.after != 0 && c.reads > c.after {
		c.object = nil
		return nil, apierrors.NewNotFound(configMaps, "gleaner-canary-x")
	}
	return c.object, nil
}

func (c *fakeAPI) probe() canary.Probe {
	return canary.Probe{Client: c, Namespace: "gleaner", Timeout: 10 * time.Second, OnCreate: func(uid types.UID) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.verbs = append(c.verbs, "own "+string(uid))
	}}
}

// result is the result of a probe.
type result struct {
	Alive     bool
	Failed    bool
	Took      time.Duration
	Verbs     []string
	Remaining bool // the canary still exists
}

func runProbe(ctx context.Context, c *fakeAPI) result {
	start := time.Now()
	alive, err := c.probe().Run(ctx)
	return result{Alive: alive, Failed: err != nil, Took: time.Since(start), Verbs: c.verbs, Remaining: c.object != nil}
}

const (
	deleted = "delete Foreground bird"
	removed = `patch application/merge-patch+json {"metadata":{"uid":"bird","finalizers":null}}`
)

// The canary's UID is passed to Own before its delete, so that Gleaner ignores all its
// events.
func TestRun_DetectsAnotherCollector(t *testing.T) {
	for name, c := range map[string]struct {
		after int
		want  result
	}{
		"another collector":          {3, result{Alive: true, Took: 800 * time.Millisecond, Verbs: []string{"create", "own bird", deleted}}},
		"no other collector":         {0, result{Took: 10 * time.Second, Verbs: []string{"create", "own bird", deleted, removed}}},
		"another at the last moment": {48, result{Alive: true, Took: 9800 * time.Millisecond, Verbs: []string{"create", "own bird", deleted}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if diff := cmp.Diff(c.want, runProbe(t.Context(), newFakeAPI(c.after))); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Any client that removes the finalizer or the object counts as a collector.
func TestRun_SignsOfAnotherCollector(t *testing.T) {
	for name, change := range map[string]func(*fakeAPI){
		"finalizer removed":            func(c *fakeAPI) { c.object.Finalizers = nil },
		"another object with its name": func(c *fakeAPI) { c.object.UID = "another" },
		"object removed":               func(c *fakeAPI) { c.object = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeAPI(0)
				go func() {
					time.Sleep(time.Second)
					c.mu.Lock()
					defer c.mu.Unlock()
					change(c)
				}()
				if got := runProbe(t.Context(), c); !got.Alive || got.Failed {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// An error means that the result is unknown.
func TestRun_ErrorsProveNothing(t *testing.T) {
	no := apierrors.NewForbidden(configMaps, "", errors.New("no rights"))
	for verb, want := range map[string]string{
		"create": "create canary ConfigMap in namespace \"gleaner\": ",
		"delete": "delete canary ConfigMap gleaner/gleaner-canary-x: ",
		"get":    "read canary ConfigMap gleaner/gleaner-canary-x: ",
		"patch":  "remove canary ConfigMap gleaner/gleaner-canary-x: ",
	} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeAPI(0)
				c.denied[verb] = no
				alive, err := c.probe().Run(t.Context())
				if alive || err == nil || !strings.HasPrefix(err.Error(), want) || !apierrors.IsForbidden(err) {
					t.Errorf("alive is %t, error: %v", alive, err)
				}
				if owned := slices.Contains(c.verbs, "own bird"); owned != (verb != "create") {
					t.Errorf("owned is %t: %v", owned, c.verbs)
				}
			})
		})
	}
}

// The wait ends with the context.
func TestRun_CallsOnCreateBeforeTheDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, nil)
		defer cancel()
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		if got := runProbe(ctx, newFakeAPI(0)); !got.Failed || got.Took != time.Second {
			t.Errorf("%+v", got)
		}
	})
}

// The other collector finalizes the canary after the timeout, but before it is removed.
func TestRun_CanaryGoneAtRemovalMeansAnotherCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeAPI(0)
		c.denied["patch"] = apierrors.NewNotFound(configMaps, "gleaner-canary-x")
		if got := runProbe(t.Context(), c); !got.Alive && !got.Failed {
			t.Errorf("%+v", got)
		}
	})
}

// Reads without a response prove nothing.
func TestRun_WithoutAReadNothingIsProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeAPI(0)
		c.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Minute) // an API server that hangs for longer than the timeout
			return true, nil, context.DeadlineExceeded
		})
		if got := runProbe(t.Context(), c); !got.Failed {
			t.Errorf("%+v", got)
		}
	})
}

// The canary is removed even if a read fails.
func TestRun_AlwaysRemovesTheCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeAPI(0)
		c.denied["get"] = apierrors.NewInternalError(errors.New("etcd"))
		if got := runProbe(t.Context(), c); got.Remaining {
			t.Errorf("%+v", got)
		}
	})
}

func TestLeaseHolder(t *testing.T) {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-controller-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("node-1_abc")},
	}
	noHolder := lease.DeepCopy()
	noHolder.Spec.HolderIdentity = nil
	for name, c := range map[string]struct {
		client *fake.Clientset
		broken error
		want   string
		fails  bool
	}{
		"lease with holder":    {fake.NewClientset(lease), nil, "node-1_abc", false},
		"lease without holder": {fake.NewClientset(noHolder), nil, "", false},
		"no lease":             {fake.NewClientset(), nil, "", false},
		"read fails":           {fake.NewClientset(lease), apierrors.NewInternalError(errors.New("etcd")), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.broken != nil {
				c.client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.broken })
			}
			got, err := canary.LeaseHolder(t.Context(), c.client)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

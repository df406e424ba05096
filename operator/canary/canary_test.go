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

// cage is an API server with one canary at most. Its other collector is quick
// or there is none.
type cage struct {
	*fake.Clientset

	mu      sync.Mutex // covers what follows
	bird    *corev1.ConfigMap
	did     []string // what was asked for, with what told
	reads   int
	after   int // reads after which another collector finishes the canary; 0: there is none
	refuses map[string]error
}

func newCage(after int) *cage {
	c := &cage{Clientset: fake.NewClientset(), after: after, refuses: map[string]error{}}
	c.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if action.GetVerb() != "get" {
			c.did = append(c.did, action.GetVerb())
		}
		if err := c.refuses[action.GetVerb()]; err != nil {
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

func (c *cage) react(action clienttesting.Action) (*corev1.ConfigMap, error) {
	if create, ok := action.(clienttesting.CreateAction); ok && action.GetVerb() == "create" {
		c.bird = create.GetObject().(*corev1.ConfigMap).DeepCopy()
		c.bird.Name, c.bird.UID, c.bird.ResourceVersion = c.bird.GenerateName+"x", "bird", "1"
		return c.bird, nil
	}
	if c.bird == nil {
		return nil, apierrors.NewNotFound(configMaps, "gleaner-canary-x")
	}
	switch action := action.(type) {
	case clienttesting.DeleteActionImpl:
		options := action.GetDeleteOptions()
		c.did[len(c.did)-1] += " " + string(ptr.Deref(options.PropagationPolicy, "")) + " " + string(ptr.Deref(options.Preconditions.UID, ""))
		c.bird.DeletionTimestamp, c.bird.Finalizers = &metav1.Time{}, []string{metav1.FinalizerDeleteDependents}
		return nil, nil
	case clienttesting.PatchActionImpl:
		c.did[len(c.did)-1] += " " + string(action.GetPatchType()) + " " + string(action.GetPatch())
		bird := c.bird
		c.bird = nil
		return bird, nil
	}
	if c.reads++; c.after != 0 && c.reads > c.after {
		c.bird = nil
		return nil, apierrors.NewNotFound(configMaps, "gleaner-canary-x")
	}
	return c.bird, nil
}

func (c *cage) canary() canary.Canary {
	return canary.Canary{Client: c, Namespace: "gleaner", Timeout: 10 * time.Second, Own: func(uid types.UID) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.did = append(c.did, "own "+string(uid))
	}}
}

// song is what a canary came to.
type song struct {
	Alive  bool
	Failed bool
	Took   time.Duration
	Did    []string
	Left   bool // the canary is still there
}

func sing(ctx context.Context, c *cage) song {
	began := time.Now()
	alive, err := c.canary().Sing(ctx)
	return song{Alive: alive, Failed: err != nil, Took: time.Since(began), Did: c.did, Left: c.bird != nil}
}

const (
	deleted = "delete Foreground bird"
	removed = `patch application/merge-patch+json {"metadata":{"uid":"bird","finalizers":null}}`
)

// The canary's UID is told before its delete, so that whoever let it out can
// leave it alone from the first event on.
func TestACanaryTellsWhetherAnotherCollectorIsAlive(t *testing.T) {
	for name, c := range map[string]struct {
		after int
		want  song
	}{
		"somebody finishes it":              {3, song{Alive: true, Took: 800 * time.Millisecond, Did: []string{"create", "own bird", deleted}}},
		"nobody does, and it is taken in":   {0, song{Took: 10 * time.Second, Did: []string{"create", "own bird", deleted, removed}}},
		"somebody does, at the last moment": {48, song{Alive: true, Took: 9800 * time.Millisecond, Did: []string{"create", "own bird", deleted}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if diff := cmp.Diff(c.want, sing(t.Context(), newCage(c.after))); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Whoever takes the finalizer off, or the whole object, is a collector.
func TestSignsOfAnotherCollector(t *testing.T) {
	for name, change := range map[string]func(*cage){
		"its finalizer is off":         func(c *cage) { c.bird.Finalizers = nil },
		"another object took its name": func(c *cage) { c.bird.UID = "another" },
		"it is gone":                   func(c *cage) { c.bird = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCage(0)
				go func() {
					time.Sleep(time.Second)
					c.mu.Lock()
					defer c.mu.Unlock()
					change(c)
				}()
				if got := sing(t.Context(), c); !got.Alive || got.Failed {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// An error means that nothing was found out, and says what was being done.
func TestAnErrorFindsNothingOut(t *testing.T) {
	no := apierrors.NewForbidden(configMaps, "", errors.New("no rights"))
	for verb, want := range map[string]string{
		"create": "create canary ConfigMap in namespace \"gleaner\": ",
		"delete": "delete canary ConfigMap gleaner/gleaner-canary-x: ",
		"get":    "read canary ConfigMap gleaner/gleaner-canary-x: ",
		"patch":  "remove canary ConfigMap gleaner/gleaner-canary-x: ",
	} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCage(0)
				c.refuses[verb] = no
				alive, err := c.canary().Sing(t.Context())
				if alive || err == nil || !strings.HasPrefix(err.Error(), want) || !apierrors.IsForbidden(err) {
					t.Errorf("alive is %t, error: %v", alive, err)
				}
				if owned := slices.Contains(c.did, "own bird"); owned != (verb != "create") {
					t.Errorf("owned is %t: %v", owned, c.did)
				}
			})
		})
	}
}

// A canary that nobody asks about any more is not waited for.
func TestACanaryIsCalledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, nil)
		defer cancel()
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		if got := sing(ctx, newCage(0)); !got.Failed || got.Took != time.Second {
			t.Errorf("%+v", got)
		}
	})
}

// The other collector was slower than our patience, but quicker than our
// clearing up: what we wanted to remove is gone.
func TestACanaryThatIsGoneWhenItIsTakenInSpeaksOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCage(0)
		c.refuses["patch"] = apierrors.NewNotFound(configMaps, "gleaner-canary-x")
		if got := sing(t.Context(), c); !got.Alive && !got.Failed {
			t.Errorf("%+v", got)
		}
	})
}

// Reads that never got an answer show nothing, above all not that nobody is
// there.
func TestNoReadAtAllFindsNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCage(0)
		c.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Minute) // an API server that hangs, for longer than the canary is given
			return true, nil, context.DeadlineExceeded
		})
		if got := sing(t.Context(), c); !got.Failed {
			t.Errorf("%+v", got)
		}
	})
}

// One read that fails is no reason to leave a canary behind.
func TestACanaryIsTakenInWhateverHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCage(0)
		c.refuses["get"] = apierrors.NewInternalError(errors.New("etcd"))
		if got := sing(t.Context(), c); got.Left {
			t.Errorf("%+v", got)
		}
	})
}

func TestHolder(t *testing.T) {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-controller-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("node-1_abc")},
	}
	nobody := lease.DeepCopy()
	nobody.Spec.HolderIdentity = nil
	for name, c := range map[string]struct {
		client *fake.Clientset
		broken error
		want   string
		fails  bool
	}{
		"who holds the lease": {fake.NewClientset(lease), nil, "node-1_abc", false},
		"nobody holds it":     {fake.NewClientset(nobody), nil, "", false},
		"there is no lease":   {fake.NewClientset(), nil, "", false},
		"it can't be read":    {fake.NewClientset(lease), apierrors.NewInternalError(errors.New("etcd")), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.broken != nil {
				c.client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.broken })
			}
			got, err := canary.Holder(t.Context(), c.client)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

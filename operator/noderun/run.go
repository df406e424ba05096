// Package noderun assembles what Gleaner runs on a node: it connects the agent to the API server, the container runtime, the file
// system and the metrics.
package noderun

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/cri"
	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/nodestatus"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// stalled is how long a turn of the agent can take before the agent is not healthy: much longer than the limit of a round.
const stalled = 15 * time.Minute

// Options say what an agent runs with.
type Options struct {
	Node            string // its name
	RuntimeEndpoint string // such as unix:///run/containerd/containerd.sock
	RuntimeTimeout  time.Duration
	ImageFilesystem string // a path on the file system that has the images; "": where the runtime says that it is
	Metrics         prometheus.Registerer
	Log             logr.Logger
}

// Configure sets what the manager of an agent caches: the policies, the Node, and what is needed of the Pods on it.
func Configure(o *manager.Options, node string) error {
	o.Scheme = runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(o.Scheme), v1alpha1.AddToScheme(o.Scheme)); err != nil {
		return fmt.Errorf("register types: %w", err)
	}
	o.Cache = cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Node{}: {Field: fields.OneTermEqualSelector("metadata.name", node)},
		&corev1.Pod{}:  {Field: fields.OneTermEqualSelector(nodeField, node), Transform: trim},
	}}
	return nil
}

// AddTo adds an agent to a manager that Configure has made the options of.
func AddTo(mgr manager.Manager, o Options) error {
	s := &source{name: o.Node, cached: mgr.GetCache(), live: mgr.GetAPIReader()}
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("create client: %w", err)
	}
	runtimeClient := cri.New(o.RuntimeEndpoint, o.RuntimeTimeout)
	counted := newSeries()
	if err := o.Metrics.Register(counted); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	writer := &nodestatus.Writer{Client: direct, Events: mgr.GetEventRecorder("gleaner-node"), Node: s.node, Log: o.Log.WithName("status")}
	fs := &filesystem{path: o.ImageFilesystem, runtime: runtimeClient}
	health := &health{}
	agent := nodeagent.New(nodeagent.Options{
		Runtime: runtimeClient, Needs: s.needs, Usage: fs.usage, Policies: func() ([]noderetention.Policy, bool) {
			health.alive()
			return s.policies()
		},
		Review: (&reviewer{client: direct, node: s.node}).review,
		Publish: func(r nodeagent.Report) {
			counted.observe(r)
			writer.Publish(r)
		},
		Log: o.Log.WithName("agent"),
	})
	if err := mgr.AddHealthzCheck("agent", health.check); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := watch(ctx, mgr.GetCache(), agent); err != nil {
			return err
		}
		s.synced.Store(true)
		var all sync.WaitGroup
		all.Go(func() { writer.Run(ctx) })
		all.Go(func() { agent.Run(ctx) })
		all.Wait()
		return runtimeClient.Close(context.WithoutCancel(ctx))
	}))
}

// watch waits until the caches are filled, and wakes the agent when what it reads there changes.
func watch(ctx context.Context, from cache.Cache, agent *nodeagent.Agent) error {
	for _, o := range []client.Object{&v1alpha1.NodeRetentionPolicy{}, &corev1.Node{}, &corev1.Pod{}} {
		informer, err := from.GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
		if _, isPod := o.(*corev1.Pod); isPod {
			continue // they are read with each round
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { agent.Wake() },
			DeleteFunc: func(any) { agent.Wake() },
			UpdateFunc: func(before, after any) {
				if matters(before, after) {
					agent.Wake()
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	return nil
}

// matters reports whether an update changes what the agent does.
func matters(before, after any) bool {
	a, isNode := before.(*corev1.Node)
	b, _ := after.(*corev1.Node)
	if !isNode || b == nil {
		return true
	}
	return !underPressure(a) && underPressure(b) || fmt.Sprint(a.Labels) != fmt.Sprint(b.Labels)
}

// filesystem is the file system that has the images.
type filesystem struct {
	mu      sync.Mutex
	path    string // "": not known yet
	runtime *cri.Client
}

func (f *filesystem) usage(ctx context.Context) (retain.Usage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		path, err := f.runtime.ImageFilesystem(ctx)
		if err != nil {
			return retain.Usage{}, err
		}
		f.path = path
	}
	return usageOf(f.path)
}

// health is how long ago the agent began a turn.
type health struct {
	mu   sync.Mutex
	last time.Time
}

func (h *health) alive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

// check returns an error if the agent hangs. It has not begun until the caches are filled.
func (h *health) check(*http.Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if since := time.Since(h.last); !h.last.IsZero() && since > stalled {
		return fmt.Errorf("the agent has done nothing for %s", since.Round(time.Second))
	}
	return nil
}

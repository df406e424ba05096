// Package imagereview answers ImageRemovalRequests: Gleaner on a node asks before it removes an image, and the policies with the hook
// retain that govern the Node are evaluated.
//
// Only the leader answers. What it can't evaluate now has no answer, and the node keeps an image without one.
package imagereview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/follow"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/livesource"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// atOnce is how many requests are evaluated at the same time, and perTurn how many before they are read again.
	atOnce, perTurn = 4, 8

	// evaluateTimeout limits the evaluation of one request.
	evaluateTimeout = 5 * time.Second

	// expires is when a request is deleted if its node has not done so.
	expires = 10 * time.Minute

	// minRetry is when those that wait have their turn, if none of the others could be answered.
	minRetry = time.Second

	// failedRetry is when a request that could not be answered has its turn again.
	failedRetry = 3 * time.Second

	// keptFor is how long an image stays if the policy that keeps it does not say.
	keptFor = 10 * time.Minute
)

var nodeKind = schema.GroupKind{Kind: "Node"}

// Outcome is an answer that keeps an image.
type Outcome struct {
	Node      graph.Object
	Request   *v1alpha1.ImageRemovalRequest
	Evaluated evaluate.Result
}

// Evaluator evaluates policies. It must be safe for concurrent use.
type Evaluator interface {
	Evaluate(context.Context, evaluate.Input) (evaluate.Result, error)
}

// Options configure a Reviewer. All fields are required.
type Options struct {
	Client client.Client // reads live
	Absent livelist.Absent

	Evaluator Evaluator
	Policies  func() *policies.Set // nil until they are known
	Graph     evaluate.Graph
	Types     func() *catalog.Catalog
	Reader    modulecall.Reader
	Lister    follow.Lister

	Answers func() bool   // reports whether this replica answers
	Record  func(Outcome) // receives what keeps an image
	Now     func() time.Time
	Log     logr.Logger
}

// Reviewer answers requests. Create it with New, and run it.
type Reviewer struct {
	*livesource.Source[[]v1alpha1.ImageRemovalRequest]
	options   Options
	workloads *workloads

	mu     sync.Mutex              // covers what follows
	failed map[types.UID]time.Time // until when requests without an answer wait, so that others have their turn
}

// New returns a Reviewer that has read nothing yet.
func New(o Options) *Reviewer {
	r := &Reviewer{options: o, workloads: &workloads{lister: o.Lister, types: o.Types, now: o.Now}, failed: map[types.UID]time.Time{}}
	r.Source = livesource.New(livesource.Options[[]v1alpha1.ImageRemovalRequest]{
		Name: "image removal requests", Kinds: []string{v1alpha1.KindImageRemovalRequest}, Now: o.Now, Log: o.Log, Read: r.read, Published: r.answerAll,
	})
	return r
}

func (r *Reviewer) read(ctx context.Context) ([]v1alpha1.ImageRemovalRequest, bool, error) {
	var list v1alpha1.ImageRemovalRequestList
	served, err := livelist.List(ctx, r.options.Client, r.options.Absent, v1alpha1.KindImageRemovalRequest, &list)
	return list.Items, served, err
}

// answerAll answers some of the requests, the oldest of each node first, and deletes those that have expired. It returns when there is
// more to do; zero: with the next change.
func (r *Reviewer) answerAll(ctx context.Context, all []v1alpha1.ImageRemovalRequest) (again time.Time) {
	if !r.options.Answers() {
		return time.Time{}
	}
	due, more := r.due(ctx, all)
	var running sync.WaitGroup
	var answered atomic.Int32
	slots := make(chan struct{}, atOnce)
	for i := range due {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			err := r.answer(ctx, &due[i])
			if err == nil {
				answered.Add(1)
				return
			}
			r.mu.Lock()
			r.failed[due[i].UID] = r.options.Now().Add(failedRetry)
			r.mu.Unlock()
			if ctx.Err() == nil {
				r.options.Log.Info("Could not answer an image removal request, retrying", "request", due[i].Name, "node", due[i].Spec.NodeName, "error", err.Error())
			}
		})
	}
	running.Wait()
	switch {
	case !more:
		return time.Time{}
	case answered.Load() == 0:
		return r.options.Now().Add(minRetry)
	default:
		return r.options.Now()
	}
}

// due returns the requests to answer now, and whether there are more. It deletes those that have expired.
func (r *Reviewer) due(ctx context.Context, all []v1alpha1.ImageRemovalRequest) (due []v1alpha1.ImageRemovalRequest, more bool) {
	slices.SortFunc(all, func(a, b v1alpha1.ImageRemovalRequest) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.failed, func(_ types.UID, until time.Time) bool { return !r.options.Now().Before(until) })
	nodes := map[string]bool{}
	for _, one := range all {
		switch {
		case r.options.Now().Sub(one.CreationTimestamp.Time) > expires:
			err := r.options.Client.Delete(ctx, &one, client.Preconditions{UID: &one.UID})
			if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				r.options.Log.Error(err, "Could not delete an image removal request that has expired", "request", one.Name)
			}
		case one.Status.Decision != "" || one.DeletionTimestamp != nil:
		case !r.failed[one.UID].IsZero():
		case nodes[one.Spec.NodeName] || len(due) == perTurn:
			more = true
		default:
			nodes[one.Spec.NodeName] = true
			due = append(due, one)
		}
	}
	return due, more
}

// answer evaluates policies, and writes the answer to a request.
func (r *Reviewer) answer(ctx context.Context, q *v1alpha1.ImageRemovalRequest) error {
	ctx, cancel := context.WithTimeout(ctx, evaluateTimeout)
	defer cancel()
	status, outcome, err := r.evaluate(ctx, q)
	if err != nil {
		return err
	}
	before := q.DeepCopy()
	q.Status = status
	if err := r.options.Client.Status().Patch(ctx, q, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	if status.Decision == v1alpha1.ImageKeep {
		r.options.Record(outcome)
	}
	return nil
}

// evaluate returns the answer to a request.
func (r *Reviewer) evaluate(ctx context.Context, q *v1alpha1.ImageRemovalRequest) (v1alpha1.ImageRemovalRequestStatus, Outcome, error) {
	var none v1alpha1.ImageRemovalRequestStatus
	set := r.options.Policies()
	resource, served := r.options.Types().Preferred(nodeKind)
	if set == nil || !served {
		return none, Outcome{}, errors.New("the policies have not been read yet")
	}
	node, err := r.options.Reader.Get(ctx, policies.ServiceAccount{}, resource.Version, "", q.Spec.NodeName)
	if err != nil {
		return none, Outcome{}, fmt.Errorf("read node %s: %w", q.Spec.NodeName, err)
	}
	node.SetGroupVersionKind(resource.GroupVersionKind())
	image := imageOf(q.Spec.Image)
	if set.Has(hostabi.HookRetain, resource.Version.GroupResource(), "") {
		if image.Workloads, err = r.workloads.of(ctx, image); err != nil {
			return none, Outcome{}, err
		}
	}
	result, err := r.options.Evaluator.Evaluate(ctx, r.input(q, node, image))
	switch {
	case err != nil:
		return none, Outcome{}, err
	case result.Changed != nil:
		return none, Outcome{}, fmt.Errorf("node %s has changed", q.Spec.NodeName)
	}
	return statusOf(result), Outcome{Node: graph.ObjectOf(node.GroupVersionKind(), node), Request: q, Evaluated: result}, nil
}

func (r *Reviewer) input(q *v1alpha1.ImageRemovalRequest, node *unstructured.Unstructured, image hostabi.Image) evaluate.Input {
	return evaluate.Input{
		Hook: hostabi.HookRetain, Facts: evaluate.FactsOf(graph.ObjectOf(node.GroupVersionKind(), node), r.options.Graph), Object: node,
		Retention: &hostabi.Retention{Policy: q.Spec.Policy, Limit: q.Spec.Limit}, Image: &image,
	}
}

func imageOf(i v1alpha1.NodeImage) hostabi.Image {
	image := hostabi.Image{
		ID: i.ID, Names: i.Names, SizeBytes: i.SizeBytes, FirstSeen: i.FirstSeen.UTC(), Workloads: []hostabi.Workload{},
	}
	for key, value := range i.Labels {
		if image.Labels == nil {
			image.Labels = map[string]string{}
		}
		image.Labels[key] = string(value)
	}
	if i.LastUsed != nil {
		at := i.LastUsed.UTC()
		image.LastUsed = &at
	}
	return image
}

// statusOf returns the answer for what policies have decided.
func statusOf(result evaluate.Result) v1alpha1.ImageRemovalRequestStatus {
	const longest = 1024
	s := v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageKeep, DecidedBy: result.PolicyName(""), Reason: result.Verdict.Reason}
	switch {
	case result.Fault != nil:
		s.Reason, s.After = result.Fault.Error(), v1alpha1.Duration(time.Minute.String())
	case result.Verdict.Decision == hostabi.DecisionRemove:
		s.Decision = v1alpha1.ImageRemove
	default: // Keep, and anything else keeps the image
		s.After = v1alpha1.Duration(max(cmp.Or(time.Duration(result.Verdict.After), keptFor), time.Duration(hostabi.MinWait)).String())
	}
	if len(s.Reason) > longest {
		s.Reason = strings.ToValidUTF8(s.Reason[:longest], "")
	}
	return s
}

// Package reviewer answers whether a user may delete an object: it evaluates the policies that protect the object.
//
// A request that can't be decided about is denied if a policy that holds on faults may govern the object.
package reviewer

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/protect"
	"github.com/gleaner-dev/gleaner/operator/slots"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// Timeout limits a review. The API server waits a second longer.
	Timeout = 4 * time.Second

	// maxReviews is how many reviews may be in progress in one replica, and maxSlotWait how long one waits for others
	// of its namespace.
	maxReviews  = 20
	maxSlotWait = 500 * time.Millisecond
)

// Recorder records denied requests.
type Recorder interface {
	RecordDenied(o graph.Object, user string, evaluation evaluate.Result)
}

// Options configure a Reviewer. All fields are required.
type Options struct {
	Evaluator *evaluate.Evaluator
	Policies  func() *policies.Set          // nil until they are known
	Covers    func(fingerprint string) bool // see policyset.Publisher.Covers
	Types     func() *catalog.Catalog
	Graph     evaluate.Graph
	Recorder  Recorder
}

// Reviewer answers requests. Create it with New. Its methods may be called concurrently.
type Reviewer struct {
	options Options
	slots   *slots.Slots
}

// New returns a Reviewer.
func New(o Options) *Reviewer {
	return &Reviewer{options: o, slots: slots.New(maxReviews, maxSlotWait)}
}

// answer is the answer to a request. The zero answer denies it.
type answer struct {
	allowed  bool
	message  string   // why it is denied
	warnings []string // that modules in Monitor mode would have denied it
	retry    bool     // the request may succeed later
}

// Handler serves the webhooks of policies that protect objects.
func (r *Reviewer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+protect.Path+"{policies}", func(w http.ResponseWriter, from *http.Request) {
		handlerOf(func(ctx context.Context, q request) answer {
			ctx, cancel := context.WithTimeout(ctx, Timeout)
			defer cancel()
			return r.review(ctx, from.PathValue("policies"), q)
		}).ServeHTTP(w, from)
	})
	return mux
}

// review answers one request, which is due to the policies with a fingerprint.
func (r *Reviewer) review(ctx context.Context, fingerprint string, q request) answer {
	set, o := r.options.Policies(), graph.ObjectOf(q.Kind, q.Object)
	resource, served := r.options.Types().Preferred(q.Kind.GroupKind())
	switch {
	case set == nil:
		return later("the policies have not been read yet")
	case !r.options.Covers(fingerprint):
		return later("the policies have changed, and have not been read yet")
	case !served:
		return later("objects of this kind are not known yet")
	}
	release, ok := r.slots.Acquire(ctx, o.Namespace)
	if !ok {
		return withoutSlot(set, resource.Version.GroupResource(), o.Namespace)
	}
	defer release()
	input := evaluate.Input{
		Hook: hostabi.HookProtect, Facts: evaluate.FactsOf(o, r.options.Graph), RequestedPropagation: requested(q.Propagation), UserInfo: &q.user, Object: q.Object,
	}
	if resource.Version.Version != q.Kind.Version {
		input.Object = nil // policies see objects in one version
	}
	result, err := r.options.Evaluator.Evaluate(ctx, input)
	if err != nil {
		return later(err.Error())
	}
	to := answerOf(result)
	if !to.allowed && !to.retry && !q.DryRun {
		r.options.Recorder.RecordDenied(o, q.user.Username, result)
	}
	return to
}

// requested returns the propagation policy that a user requests.
func requested(p metav1.DeletionPropagation) hostabi.RequestedPropagation {
	switch p {
	case metav1.DeletePropagationForeground:
		return hostabi.RequestedForeground
	case metav1.DeletePropagationOrphan:
		return hostabi.RequestedOrphan
	default:
		return hostabi.RequestedUnspecified
	}
}

// answerOf returns the answer for what policies have decided.
func answerOf(result evaluate.Result) answer {
	name := result.PolicyName("the default")
	switch {
	case result.Changed != nil:
		return later("the object has changed in the meantime")
	case result.Fault != nil && result.DecidedBy == nil:
		return later(result.Fault.Error())
	case result.Fault != nil:
		return answer{message: fmt.Sprintf("%s protects the object, and can't be evaluated: %v; ask its author, or set onFault: Default in it", name, result.Fault)}
	case result.Verdict.Decision == hostabi.DecisionAllow:
		return answer{allowed: true, warnings: warningsOf(result)}
	default: // Deny, and anything else keeps the object
		return answer{message: protect.Message(name, true, result.Verdict.Reason)}
	}
}

// warningsOf says which modules in Monitor mode would have denied a request that is allowed. About fixed verdicts, the API
// server warns.
func warningsOf(result evaluate.Result) (all []string) {
	for _, e := range result.Evaluations {
		if !e.Policy.Enforce && e.Policy.Module != "" && e.Fault == nil && e.Verdict.Decision == hostabi.DecisionDeny {
			all = append(all, protect.Message(e.Policy.String(), false, e.Verdict.Reason))
		}
	}
	return all
}

// later denies a request that may succeed later.
func later(why string) answer {
	return answer{message: "Gleaner can't decide yet whether the object may be deleted: " + why + "; try again", retry: true}
}

// withoutSlot answers a request that can't be evaluated now, since too many others of its namespace are.
func withoutSlot(set *policies.Set, resource schema.GroupResource, namespace string) answer {
	for p := range set.Candidates(hostabi.HookProtect, resource, namespace) {
		if p.Enforce && p.OnFault != policies.OnFaultDefault {
			return later("too many requests to delete objects of this namespace are being decided about")
		}
	}
	return answer{allowed: true}
}

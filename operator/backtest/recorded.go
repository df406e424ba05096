package backtest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

// recorded is what one entry contains, and answers reads from it. Reads of anything else fail, and
// set missing.
type recorded struct {
	entry      record.Entry
	hook       hostabi.Hook
	transcript *record.Evaluation // with the most of the object; nil: there is none
	request    hostabi.Request    // its first; without a transcript, only what the entry contains
	level      policies.Needs     // how much of the object it has

	defaultKnown bool   // what the default does is known
	usesDefault  bool   // the verdict leaves the propagation policy to the default
	missing      string // what was read, and is not in the record; empty: nothing
}

func newRecorded(e record.Entry, hook hostabi.Hook) *recorded {
	c := &recorded{entry: e, hook: hook, level: policies.NeedsReference, usesDefault: true}
	for i, a := range e.Evaluations {
		if !a.Replayable || len(a.Exchanges) == 0 {
			continue
		}
		if level := levelOf(a.Exchanges[0].Request); c.transcript == nil || policies.MostNeeds(level, c.level) != c.level {
			c.transcript, c.level = &e.Evaluations[i], level
		}
	}
	c.request.Time, c.request.Attempt = e.Time, 1
	if c.transcript != nil {
		c.request = c.transcript.Exchanges[0].Request
	}
	c.defaultKnown = c.transcript != nil || e.Action == record.Delete && len(e.Evaluations) == 0
	return c
}

// levelOf returns how much of the object a request has.
func levelOf(r hostabi.Request) policies.Needs {
	switch {
	case slices.Contains(r.Withheld, "metadata.labels"):
		return policies.NeedsReference
	case slices.Contains(r.Withheld, "object"):
		return policies.NeedsMetadata
	default:
		return policies.NeedsObject
	}
}

// ownerStatus returns the status with a name.
func ownerStatus(name string) decide.OwnerStatus {
	for s := decide.Present; s <= decide.Unresolvable; s++ {
		if s.String() == name {
			return s
		}
	}
	return decide.Unknown
}

// facts returns the facts of the decision, as far as they are recorded.
func (c *recorded) facts() decide.Facts {
	o := c.entry.Object
	f := decide.Facts{Dependents: c.request.Dependents.Count, Object: graph.Object{
		UID: o.UID, ResourceVersion: o.ResourceVersion, Kind: schema.FromAPIVersionAndKind(o.APIVersion, o.Kind), Namespace: o.Namespace, Name: o.Name,
	}}
	if c.transcript != nil {
		f.Object.ResourceVersion = c.request.Object.Metadata.ResourceVersion
		f.Object.Orphan = slices.Contains(c.request.Object.Metadata.Finalizers, metav1.FinalizerOrphanDependents)
		f.Object.Foreground = slices.Contains(c.request.Object.Metadata.Finalizers, metav1.FinalizerDeleteDependents)
	} else if c.defaultKnown {
		f.Object.Orphan = c.entry.Detail == string(metav1.DeletePropagationOrphan)
		f.Object.Foreground = c.entry.Detail == string(metav1.DeletePropagationForeground)
	}
	if c.hook == hostabi.HookPropagate {
		f.Object.Terminating, f.Object.Held = true, true
	}
	for _, owner := range c.entry.Owners {
		ref := metav1.OwnerReference{APIVersion: owner.Object.APIVersion, Kind: owner.Object.Kind, Name: owner.Object.Name, UID: owner.Object.UID}
		f.Object.Owners = append(f.Object.Owners, ref)
		f.Owners = append(f.Owners, decide.Owner{Reference: ref, Status: ownerStatus(owner.Status), Message: owner.Message})
	}
	return f
}

var errNotRecorded = errors.New("not in the record")

// miss notes the first thing that is not in the record.
func (c *recorded) miss(what string) error {
	if c.missing == "" {
		c.missing = what
	}
	return errNotRecorded
}

// Get implements modulecall.Reader for the object of the entry.
func (c *recorded) Get(_ context.Context, _ policies.ServiceAccount, _ schema.GroupVersionResource, _, _ string) (*unstructured.Unstructured, error) {
	if c.level == policies.NeedsReference {
		return nil, c.miss("the object's labels and content")
	}
	data, err := json.Marshal(c.request.Object)
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	return o, o.UnmarshalJSON(data)
}

// Namespace implements modulecall.Reader. Its labels are not recorded, see guard.
func (c *recorded) Namespace(_ context.Context, name string) (modulecall.Namespace, error) {
	if name != "" && c.transcript == nil && c.hook == hostabi.HookPropagate {
		return modulecall.Namespace{}, c.miss("whether its namespace is being deleted")
	}
	return modulecall.Namespace{Terminating: c.request.NamespaceTerminating}, nil
}

// Do implements modulecall.Intents with the recorded result of the same intent.
func (c *recorded) Do(_ context.Context, _ intents.Identity, intent hostabi.Intent) hostabi.Result {
	if c.transcript != nil {
		for i, exchange := range c.transcript.Exchanges[:len(c.transcript.Exchanges)-1] {
			for _, then := range exchange.Verdict.Intents {
				id := then.ID
				then.ID = intent.ID
				if result, ok := c.transcript.Exchanges[i+1].Request.Results[id]; ok && reflect.DeepEqual(then, intent) {
					return result
				}
			}
		}
	}
	err := c.miss("what the module reads: " + record.IntentsOf([]hostabi.Intent{intent}, nil)[0].Summary)
	return hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorUnavailable, Message: err.Error()}}
}

func (c *recorded) dependentsByKind(graph.ID) []graph.KindCount { return nil } // the guard sets them

// guard returns the policies with evaluators, selectors and conditions that note what is not in the
// record.
func (c *recorded) guard(set *policies.Set) *policies.Set {
	var all []*policies.Policy
	for _, p := range set.All() {
		guarded := *p
		guarded.Evaluator = evaluator{MeteredEvaluator: p.Evaluator, policy: p, recorded: c}
		if p.NamespaceSelector != nil && !p.NamespaceSelector.Empty() {
			guarded.NamespaceSelector = namespaceSelector{p.NamespaceSelector, c}
		}
		if p.Matches != nil {
			guarded.Matches = func(ctx context.Context, o map[string]any) (bool, error) {
				if c.level != policies.NeedsObject {
					return false, c.miss("the object's content")
				}
				return p.Matches(ctx, o)
			}
		}
		all = append(all, &guarded)
	}
	return policies.NewSet(all)
}

// namespaceSelector notes that the labels of namespaces are not recorded.
type namespaceSelector struct {
	labels.Selector
	recorded *recorded
}

// Matches implements labels.Selector.
func (s namespaceSelector) Matches(labels.Labels) bool {
	_ = s.recorded.miss("the labels of its namespace")
	return false
}

// evaluator evaluates a policy with the recorded request.
type evaluator struct {
	policies.MeteredEvaluator
	policy   *policies.Policy
	recorded *recorded
}

// EvaluateMetered implements policies.MeteredEvaluator.
func (e evaluator) EvaluateMetered(ctx context.Context, r hostabi.Request) (policies.Evaluation, error) {
	c := e.recorded
	switch {
	case c.missing != "":
		return policies.Evaluation{}, errNotRecorded
	case e.policy.Module != "" && c.transcript == nil:
		return policies.Evaluation{}, c.miss("a request to a module")
	case e.policy.Needs != policies.NeedsReference && policies.MostNeeds(e.policy.Needs, c.level) != c.level:
		return policies.Evaluation{}, c.miss("the object's content")
	}
	if then := c.request; c.transcript != nil {
		r.Time, r.OwnersAbsentSince, r.Dependents, r.Owners, r.NamespaceTerminating = then.Time, then.OwnersAbsentSince, then.Dependents, then.Owners, then.NamespaceTerminating
		r.Object.Metadata.OwnerReferences = then.Object.Metadata.OwnerReferences
		if c.transcript.Policy == e.policy.String() && r.Round == 1 {
			r.State, r.Attempt = then.State, then.Attempt
		}
	}
	a, err := e.MeteredEvaluator.EvaluateMetered(ctx, r)
	c.usesDefault = err == nil && (a.Verdict.Decision == hostabi.DecisionAbstain || a.Verdict.Decision == hostabi.DecisionDelete && a.Verdict.Propagation == "")
	return a, err
}

// Evaluate implements policies.Evaluator.
func (e evaluator) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	a, err := e.EvaluateMetered(ctx, r)
	return a.Verdict, err
}

package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	deletions "github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/retention"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// evaluateTimeout limits the evaluation of the policies that govern one object, as in the operator.
const evaluateTimeout = 5 * time.Second

// maxTime is the time that the policies of the objects of a namespace may take in total: those of others don't wait longer for them.
const maxTime = 30 * time.Second

// shares is how long evaluations took, by namespace.
type shares map[string]time.Duration

// check returns an error if a namespace has used its time.
func (s shares) check(namespace string) error {
	if s[namespace] >= maxTime {
		return fmt.Errorf("not evaluated: the policies of this namespace have taken more than %s", maxTime)
	}
	return nil
}

// hook evaluates the policies in force with the hook retain, as the operator does before each removal.
type hook struct {
	reading   *deletions.Reading
	survey    *survey.Survey
	reader    modulecall.Reader
	evaluator *evaluate.Evaluator
	took      shares
}

// readHook reads the policies in force. The caller closes the hook; it is nil if no policy has the hook retain.
func readHook(ctx context.Context, config *rest.Config, types *survey.Survey, namespace string) (*hook, error) {
	reading, err := deletions.ReadPolicies(ctx, types, config, nil, nil, time.Now())
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	if !slices.ContainsFunc(reading.Policies.All(), func(p *policies.Policy) bool { return slices.Contains(p.Hooks, hostabi.HookRetain) }) {
		reading.Close()
		return nil, nil
	}
	// Modules may decide by the number of dependents.
	s, err := survey.Live(ctx, survey.Options{Config: config, Namespace: namespace, Now: time.Now})
	if err != nil {
		reading.Close()
		return nil, err
	}
	h := &hook{reading: reading, survey: s, reader: modulecall.NewLiveReader(config), took: shares{}}
	h.evaluator = &evaluate.Evaluator{
		Policies: func() *policies.Set { return reading.Policies }, Default: builtin.Policy{}, Catalog: s.Catalog, Reader: h.reader,
		Intents: reads{intents.New(intents.Options{
			Config: config, Catalog: s.Catalog, Log: logr.Discard(), RecordEvent: func(*corev1.ObjectReference, string, string, string) {},
		})},
		Now: time.Now, StateKeys: func() (statekey.Keys, error) { return statekey.Keys{}, errors.New("a preview has no keys") },
		DependentsByKind: s.Graph.DependentsByKind,
	}
	return h, nil
}

func (h *hook) close() { h.reading.Close() }

// reads carries out only the intents of modules that read.
type reads struct{ *intents.Executor }

// Do implements modulecall.Intents.
func (r reads) Do(ctx context.Context, identity intents.Identity, intent hostabi.Intent) hostabi.Result {
	identity.ReadOnly = true
	return r.Executor.Do(ctx, identity, intent)
}

// keptBy returns which policy keeps an object that a retention policy removes, and why; "": none. An error means that this is not known.
func (h *hook) keptBy(ctx context.Context, d retention.Decision, by *policyset.Retention) (string, error) {
	r, served := h.survey.Types.Preferred(d.Kind.GroupKind())
	if !served {
		return "", fmt.Errorf("%s is not served", d.Kind.GroupKind())
	}
	if !h.reading.Policies.Has(hostabi.HookRetain, r.Version.GroupResource(), d.Namespace) {
		return "", nil
	}
	if err := h.took.check(d.Namespace); err != nil {
		return "", err
	}
	began := time.Now()
	defer func() { h.took[d.Namespace] += time.Since(began) }()
	ctx, cancel := context.WithTimeout(ctx, evaluateTimeout)
	defer cancel()
	o, err := h.reader.Get(ctx, policies.ServiceAccount{}, r.Version, d.Namespace, d.Name)
	if err != nil {
		return "", err
	}
	if o.GetUID() != d.UID {
		return "", errors.New("it was recreated meanwhile")
	}
	result, err := h.evaluator.Evaluate(ctx, evaluate.Input{
		Hook: hostabi.HookRetain, Facts: evaluate.FactsOf(graph.ObjectOf(o.GroupVersionKind(), o), h.survey.Graph), Object: o,
		Retention: &hostabi.Retention{Policy: by.Key.Name, Namespace: by.Key.Namespace, Limit: string(d.Reason)},
	})
	if err = cmp.Or(err, result.Fault); err != nil {
		return "", h.explain(result, err)
	}
	return keptBy(result)
}

// keptBy returns which policy keeps an object, and why; "": none. Without a decision, that is not known.
func keptBy(result evaluate.Result) (string, error) {
	switch {
	case result.Changed != nil:
		return "", errors.New("it has changed meanwhile")
	case result.Verdict.Decision == hostabi.DecisionRemove:
		return "", nil
	case result.Verdict.Decision != hostabi.DecisionKeep:
		return "", errors.New("policies have not decided")
	case result.Verdict.Reason == "":
		return result.PolicyName("the default"), nil
	default:
		return result.PolicyName("the default") + ": " + result.Verdict.Reason, nil
	}
}

// explain adds to an error why the module of a policy can't be evaluated here.
func (h *hook) explain(result evaluate.Result, err error) error {
	for _, e := range result.Evaluations {
		if why, is := h.reading.NotFetched[e.Policy.String()]; is {
			return fmt.Errorf("%s can't be evaluated here: %s", e.Policy, why)
		}
	}
	return fmt.Errorf("policies could not be evaluated: %w", err)
}

package consult_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// ownerless is an object that has lost its owner.
func ownerless() decide.Facts {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}
	return decide.Facts{
		Object: graph.Object{
			UID: "uid", ResourceVersion: "1", Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
			Namespace: "shop", Name: "w", Owners: []metav1.OwnerReference{owner},
		},
		Owners: []decide.Owner{{Reference: owner, Standing: decide.Absent}},
	}
}

// keeping is a policy that has widgets kept.
func keeping(change func(*policies.Policy)) func() *policies.Set {
	p := &policies.Policy{
		Name: "keep", Enforce: true, Hooks: []hostabi.Hook{hostabi.HookCollect}, OnFault: policies.OnFaultDefault,
		Rules: []policies.Rule{{Groups: []string{"example.com"}, Resources: []string{"widgets"}}},
		Asker: answering{policies.Answer{Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan}}, nil},
	}
	change(p)
	return func() *policies.Set { return policies.NewSet([]*policies.Policy{p}) }
}

// answering is a module that gives one answer.
type answering struct {
	answer policies.Answer
	err    error
}

func (answering) Name() string { return "answering" }

func (a answering) Ask(context.Context, hostabi.Request) (policies.Answer, error) {
	return a.answer, a.err
}

func (a answering) Evaluate(context.Context, hostabi.Request) (hostabi.Verdict, error) {
	return a.answer.Verdict, a.err
}

// widgets are served.
func widgets() *catalog.Catalog {
	return catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
		{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "watch"}},
	}}}, catalog.Settings{})
}

// away is an API server that answers nothing.
type away struct{}

var errAway = errors.New("no answer")

func (away) Get(context.Context, policies.Account, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return nil, errAway
}

func (away) Namespace(context.Context, string) (consult.Namespace, error) {
	return consult.Namespace{}, errAway
}

// onFault: Default is for a module that fails. What could not be read is read another
// time.
func TestAReadThatFailsPassesNoPolicyOver(t *testing.T) {
	unread := func(*policies.Policy) {}
	for claim, c := range map[string]struct {
		change func(*policies.Policy)
		passed bool
	}{
		"the object":              {change: unread},
		"what a selector selects": {change: func(p *policies.Policy) { p.Objects = labels.SelectorFromSet(labels.Set{"a": "b"}) }},
		"the namespace":           {change: func(p *policies.Policy) { p.Namespaces = labels.SelectorFromSet(labels.Set{"a": "b"}) }},
		"a call that was cut off": {change: func(p *policies.Policy) {
			p.Needs, p.Asker = policies.NeedsReference, answering{err: context.DeadlineExceeded}
		}},
		"but a module that fails is passed over": {passed: true, change: func(p *policies.Policy) {
			p.Needs, p.Asker = policies.NeedsReference, answering{err: &policies.Fault{Kind: policies.FaultTrapped}}
		}},
		"and one that is not there": {passed: true, change: func(p *policies.Policy) {
			p.Needs, p.Asker = policies.NeedsReference, nil
		}},
	} {
		t.Run(claim, func(t *testing.T) {
			consultant := &consult.Consultant{
				Policies: keeping(c.change), Default: builtin.Policy{}, Catalog: widgets, Reader: away{}, Now: time.Now,
			}
			opinion, err := consultant.Ask(t.Context(), consult.Question{Hook: hostabi.HookCollect, Facts: ownerless()})
			if err != nil {
				t.Fatal(err)
			}
			if deleted := opinion.Verdict.Decision == hostabi.DecisionDelete; deleted != c.passed || deleted == (opinion.Fault != nil) {
				t.Errorf("it is deleted: %t, want %t; fault: %v", deleted, c.passed, opinion.Fault)
			}
		})
	}
}

// Discovery may leave a type out of one answer. The default knows of no policy, and
// would have the object deleted.
func TestWhatIsOfNoServedTypeIsKeptWhateverThePoliciesSay(t *testing.T) {
	c := &consult.Consultant{
		Policies: keeping(func(*policies.Policy) {}), Default: builtin.Policy{}, Catalog: func() *catalog.Catalog { return nil }, Now: time.Now,
	}
	opinion, err := c.Ask(t.Context(), consult.Question{Hook: hostabi.HookCollect, Facts: ownerless()})
	if err != nil || opinion.Fault == nil || opinion.Verdict.Decision != "" {
		t.Errorf("got %+v, %v; want a fault, and no verdict", opinion, err)
	}
}

// hanging is a module that never answers, and hence a call that lasts as long as its caller
// waits.
type hanging struct{ answering }

func (hanging) Ask(ctx context.Context, _ hostabi.Request) (policies.Answer, error) {
	<-ctx.Done()
	return policies.Answer{}, ctx.Err()
}

// What a policy in Monitor mode is asked for changes nothing, so it must not use up the time
// in which the object is deleted.
func TestAPolicyThatOnlyMonitorsLeavesTimeForTheDecision(t *testing.T) {
	consultant := &consult.Consultant{
		Policies: keeping(func(p *policies.Policy) { p.Enforce, p.Needs, p.Asker = false, policies.NeedsReference, hanging{} }),
		Default:  builtin.Policy{}, Catalog: widgets, Reader: away{}, Now: time.Now,
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	opinion, err := consultant.Ask(ctx, consult.Question{Hook: hostabi.HookCollect, Facts: ownerless()})
	if err != nil || opinion.Verdict.Decision != hostabi.DecisionDelete {
		t.Errorf("verdict %+v, error %v", opinion.Verdict, err)
	}
	if ctx.Err() != nil {
		t.Errorf("no time is left: %v", ctx.Err())
	}
	if len(opinion.Asked) != 1 || opinion.Asked[0].Fault == nil {
		t.Errorf("asked: %+v; want one fault", opinion.Asked)
	}
}

// A pin covers what a module says, not its limits: whoever may edit the module can have it run
// out of fuel. Unless the policy says onFault: Default, that keeps the object.
func TestAModuleThatIsLeftTooLittleFuelKeepsTheObject(t *testing.T) {
	for onFault, deleted := range map[policies.OnFault]bool{"": false, policies.OnFaultHold: false, policies.OnFaultDefault: true} {
		consultant := &consult.Consultant{
			Policies: keeping(func(p *policies.Policy) {
				p.Needs, p.OnFault = policies.NeedsReference, onFault
				p.Asker = answering{err: &policies.Fault{Kind: policies.FaultExhausted}}
			}),
			Default: builtin.Policy{}, Catalog: widgets, Reader: away{}, Now: time.Now,
		}
		opinion, err := consultant.Ask(t.Context(), consult.Question{Hook: hostabi.HookCollect, Facts: ownerless()})
		if err != nil || (opinion.Verdict.Decision == hostabi.DecisionDelete) != deleted || (opinion.Fault == nil) != deleted {
			t.Errorf("onFault %q: verdict %+v, fault %v, error %v", onFault, opinion.Verdict, opinion.Fault, err)
		}
	}
}

package collector_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// blocking is a policy that decides nothing until it is released.
type blocking struct{ began, release chan struct{} }

func (blocking) Name() string { return "blocking" }

func (b blocking) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	e, err := b.EvaluateMetered(ctx, r)
	return e.Verdict, err
}

func (b blocking) EvaluateMetered(context.Context, hostabi.Request) (policies.Evaluation, error) {
	b.began <- struct{}{}
	<-b.release
	return policies.Evaluation{Verdict: hostabi.Verdict{Decision: hostabi.DecisionDelete}}, nil
}

// receive receives a value, which must come within a minute.
func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing was sent")
	}
	return v
}

// The built-in collector has 20 workers, each of which waits for a review. With a module
// that took 2.7 s for each of 300 orphans, all of them waited, and a collection in another
// namespace took 5 to 9 s.
func TestReview_SlowNamespaceOccupiesHalfOfTheSlots(t *testing.T) {
	const workers, slots = 20, 5 // of the built-in collector, and for a namespace in one replica
	for mode, c := range map[string]struct {
		enforce bool
		allowed bool // without an evaluation
	}{"Enforce": {true, false}, "Monitor": {false, true}} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			for _, namespace := range []string{"shop", "other"} { // the owners are known to be absent
				owner := w.create(words{plain: []string{"Secret", namespace + "/owner"}, values: map[string][]string{"uid": {"u-owner-" + namespace}}})
				w.see(owner)
				w.delete(words{plain: []string{string(owner.UID), string(metav1.DeletePropagationBackground)}})
				w.seeEnd(owner.UID)
			}
			slow := blocking{began: make(chan struct{}, workers), release: make(chan struct{})}
			w.policies = []*policies.Policy{{
				Name: "slow", Namespace: "shop", Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{"configmaps"}}},
				Hooks: []hostabi.Hook{hostabi.HookCollect}, Evaluator: slow, Needs: policies.NeedsReference, Enforce: c.enforce,
			}}
			handler, responses := w.reviewer(), make(chan string, workers)
			for i := range workers {
				go func() {
					responses <- send(t, handler, companion.VetoPath, reviewOf("shop", "u-owner-shop", fmt.Sprint("o-", i)))
				}()
			}
			for range slots {
				receive(t, slow.began)
			}
			for range workers - slots {
				if got := receive(t, responses); strings.Contains(got, `"allowed":true`) != c.allowed {
					t.Errorf("without an evaluation: %s", got)
				}
			}
			if got := send(t, handler, companion.VetoPath, reviewOf("other", "u-owner-other", "a")); !strings.Contains(got, `"allowed":true`) {
				t.Errorf("in another namespace: %s", got)
			}
			held := w.create(words{plain: []string{"Secret", "shop/held"}, values: map[string][]string{"uid": {"u-held"}, "finalizers": {graph.Hold}}})
			w.deletesInForeground(held)
			w.see(held)
			if got := send(t, handler, companion.VetoPath, reviewOf("shop", "u-held", "b")); !strings.Contains(got, `"allowed":false`) {
				t.Errorf("while a policy decides about its owner: %s", got)
			}
			close(slow.release)
			for range slots {
				if got := receive(t, responses); !strings.Contains(got, `"allowed":true`) {
					t.Errorf("after an evaluation: %s", got)
				}
			}
			if got := send(t, handler, companion.VetoPath, reviewOf("shop", "u-owner-shop", "later")); !strings.Contains(got, `"allowed":true`) {
				t.Errorf("later: %s", got)
			}
		})
	}
}

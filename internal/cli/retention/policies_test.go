package retention

import (
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// Only Remove removes an object: without a decision, or if the object has changed, the outcome is unknown.
func TestKeptBy_OnlyADecisionSaysWhatHappens(t *testing.T) {
	policy := &policies.Policy{Kind: "GCPolicy", Namespace: "shop", Name: "keep"}
	for name, c := range map[string]struct {
		result evaluate.Result
		want   string
		known  bool
	}{
		"Remove":            {evaluate.Result{Verdict: hostabi.Verdict{Decision: hostabi.DecisionRemove}}, "", true},
		"Keep":              {evaluate.Result{Verdict: hostabi.Verdict{Decision: hostabi.DecisionKeep}, DecidedBy: policy}, "GCPolicy shop/keep", true},
		"Keep for a reason": {evaluate.Result{Verdict: hostabi.Verdict{Decision: hostabi.DecisionKeep, Reason: "in use"}, DecidedBy: policy}, "GCPolicy shop/keep: in use", true},
		"no decision":       {evaluate.Result{}, "", false},
		"another decision":  {evaluate.Result{Verdict: hostabi.Verdict{Decision: hostabi.DecisionWait}, DecidedBy: policy}, "", false},
		"a changed object":  {evaluate.Result{Verdict: hostabi.Verdict{Decision: hostabi.DecisionRemove}, Changed: &graph.Object{}}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := keptBy(c.result)
			if got != c.want || (err == nil) != c.known {
				t.Errorf("kept by %q, error %v", got, err)
			}
		})
	}
}

func TestShares_SlowPoliciesOfANamespaceDelayNoOther(t *testing.T) {
	took := shares{"slow": maxTime, "fast": maxTime - 1}
	if took.check("slow") == nil || took.check("fast") != nil || took.check("new") != nil {
		t.Errorf("errors %v, %v and %v; want one for the slow namespace only", took.check("slow"), took.check("fast"), took.check("new"))
	}
}

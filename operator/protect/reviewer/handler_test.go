package reviewer

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

const deleteReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"DELETE",
  "kind":{"group":"","version":"v1","kind":"ConfigMap"},"oldObject":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},
  "userInfo":{"username":"alice","groups":["team:storage"]},"options":{"propagationPolicy":"Orphan"},"dryRun":true}}`

// send sends a body to a webhook that answers with a.
func send(t *testing.T, body string, a answer) (requests []request, sent *admissionv1.AdmissionResponse) {
	t.Helper()
	handler := handlerOf(func(_ context.Context, q request) answer {
		requests = append(requests, q)
		return a
	})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/protect/f", strings.NewReader(body)))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("status %d, %s: %v", w.Code, w.Body, err)
	}
	return requests, review.Response
}

func TestHandler_PassesTheUserAndTheObject(t *testing.T) {
	requests, sent := send(t, deleteReview, answer{allowed: true, warnings: []string{"w"}})
	if len(requests) != 1 || !sent.Allowed || sent.UID != "u1" || !cmp.Equal(sent.Warnings, []string{"w"}) {
		t.Fatalf("%d requests, response %+v", len(requests), sent)
	}
	q := requests[0]
	if q.Object.GetName() != "a" || q.Kind != (schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}) || !q.DryRun ||
		requested(q.Propagation) != hostabi.RequestedOrphan || !cmp.Equal(q.user, hostabi.UserInfo{Username: "alice", Groups: []string{"team:storage"}}) {
		t.Errorf("got %+v", q)
	}
}

func TestHandler_DeniesWithTheMessage(t *testing.T) {
	for claim, c := range map[string]struct {
		answer answer
		code   int32
		reason metav1.StatusReason
	}{
		"it is denied":            {answer{message: "no"}, http.StatusForbidden, metav1.StatusReasonForbidden},
		"it may be allowed later": {answer{message: "no", retry: true}, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	} {
		t.Run(claim, func(t *testing.T) {
			_, sent := send(t, deleteReview, c.answer)
			if sent.Allowed || sent.Result.Code != c.code || sent.Result.Reason != c.reason || sent.Result.Message != "no" {
				t.Errorf("got %+v, %+v", sent, sent.Result)
			}
		})
	}
}

func TestHandler_DeniesWhatItCannotDecode(t *testing.T) {
	for claim, change := range map[string][2]string{
		"another operation": {`"operation":"DELETE"`, `"operation":"UPDATE"`},
		"no object":         {`"oldObject":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, `"oldObject":null`},
		"invalid options":   {`"options":{"propagationPolicy":"Orphan"}`, `"options":{"propagationPolicy":1}`},
	} {
		t.Run(claim, func(t *testing.T) {
			requests, sent := send(t, strings.Replace(deleteReview, change[0], change[1], 1), answer{allowed: true})
			if len(requests) != 0 || sent.Allowed || sent.Result.Message == "" {
				t.Errorf("%d requests, response %+v", len(requests), sent)
			}
		})
	}
}

func TestAnswer_IsYesOnlyIfAPolicyOrTheDefaultAllows(t *testing.T) {
	p := &policies.Policy{Name: "p", Enforce: true}
	of := func(d hostabi.Decision) hostabi.Verdict { return hostabi.Verdict{Decision: d, Reason: "ask\nalice"} }
	for claim, c := range map[string]struct {
		result  evaluate.Result
		want    answer
		message string
	}{
		"it is allowed":             {evaluate.Result{Verdict: of(hostabi.DecisionAllow)}, answer{allowed: true}, ""},
		"it is denied":              {evaluate.Result{Verdict: of(hostabi.DecisionDeny), DecidedBy: p}, answer{}, "ClusterGCPolicy p denies this deletion: ask alice"},
		"nothing was decided":       {evaluate.Result{}, answer{}, "denies this deletion"},
		"a decision of other hooks": {evaluate.Result{Verdict: of(hostabi.DecisionDelete), DecidedBy: p}, answer{}, "denies this deletion"},
		"the policy fails":          {evaluate.Result{Fault: errors.New("timed out"), DecidedBy: p}, answer{}, "ClusterGCPolicy p protects the object, and can't be evaluated: timed out"},
		"the host fails":            {evaluate.Result{Fault: errors.New("no policies yet")}, answer{retry: true}, "no policies yet; try again"},
		"the object has changed":    {evaluate.Result{Changed: &graph.Object{}, Verdict: of(hostabi.DecisionAllow)}, answer{retry: true}, "has changed"},
	} {
		t.Run(claim, func(t *testing.T) {
			got := answerOf(c.result)
			if got.allowed != c.want.allowed || got.retry != c.want.retry || !strings.Contains(got.message, c.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestWithoutASlot_OnlyWhatFailsOpenIsAllowed(t *testing.T) {
	rules := []policies.Rule{{Groups: []string{""}, Resources: []string{"configmaps"}}}
	set := func(p policies.Policy) *policies.Set {
		p.Name, p.Rules, p.Hooks = "p", rules, []hostabi.Hook{hostabi.HookProtect}
		return policies.NewSet([]*policies.Policy{&p})
	}
	for claim, c := range map[string]struct {
		policy  policies.Policy
		allowed bool
	}{
		"it holds on faults":              {policies.Policy{Enforce: true, OnFault: policies.OnFaultHold}, false},
		"onFault is not set":              {policies.Policy{Enforce: true}, false},
		"it continues without the policy": {policies.Policy{Enforce: true, OnFault: policies.OnFaultDefault}, true},
		"it is in Monitor mode":           {policies.Policy{}, true},
	} {
		t.Run(claim, func(t *testing.T) {
			got := withoutSlot(set(c.policy), schema.GroupResource{Resource: "configmaps"}, "shop")
			if got.allowed != c.allowed || got.allowed == got.retry {
				t.Errorf("got %+v", got)
			}
		})
	}
}

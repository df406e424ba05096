package veto_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/veto"
)

const deleting = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"DELETE",
  "kind":{"group":"","version":"v1","kind":"ConfigMap"},"oldObject":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},
  "options":{"propagationPolicy":"Foreground"},"dryRun":true}}`

// ask sends a body to a webhook whose judge answers so, and returns what it was asked
// and what it says.
func ask(t *testing.T, body string, answer veto.Answer) (asked []veto.Request, response *admissionv1.AdmissionResponse) {
	t.Helper()
	handler := veto.Handler(func(_ context.Context, r veto.Request) veto.Answer {
		asked = append(asked, r)
		return answer
	})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, veto.Path, strings.NewReader(body)))
	if w.Code != http.StatusOK {
		return asked, nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil {
		t.Fatal(err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != "admission.k8s.io/v1" || review.Request != nil {
		t.Errorf("answered with %+v", review)
	}
	return asked, review.Response
}

func TestTheJudgeIsToldOfTheObjectAndOfHowItIsToGo(t *testing.T) {
	asked, response := ask(t, deleting, veto.Answer{Passes: true})
	if diff := cmp.Diff(&admissionv1.AdmissionResponse{UID: "u1", Allowed: true}, response); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	got := asked[0]
	if got.Object.GetName() != "a" || got.Kind != (schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}) ||
		got.Propagation != metav1.DeletePropagationForeground || !got.DryRun {
		t.Errorf("asked about %+v", got)
	}
}

func TestARefusalIsAConflict(t *testing.T) {
	_, response := ask(t, deleting, veto.Refuse("kept by %s", "a policy"))
	want := &admissionv1.AdmissionResponse{UID: "u1", Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "kept by a policy",
	}}
	if diff := cmp.Diff(want, response); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestWhatCannotBeUnderstoodIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"not a delete":           strings.Replace(deleting, "DELETE", "UPDATE", 1),
		"no object":              strings.Replace(deleting, `"oldObject"`, `"newObject"`, 1),
		"no options":             strings.Replace(deleting, `"options"`, `"choices"`, 1),
		"options of some sort":   strings.Replace(deleting, `"Foreground"`, `7`, 1),
		"an object without kind": strings.Replace(deleting, `"kind":"ConfigMap","metadata"`, `"metadata"`, 1),
		"not a review":           `{"request": null}`,
		"not JSON":               `delete it`,
	} {
		t.Run(name, func(t *testing.T) {
			asked, response := ask(t, body, veto.Answer{Passes: true})
			if len(asked) != 0 || response != nil && response.Allowed {
				t.Errorf("asked about %+v, answered %+v", asked, response)
			}
		})
	}
}

package reviewer

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
)

const deleteReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"DELETE",
  "kind":{"group":"","version":"v1","kind":"ConfigMap"},"oldObject":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},
  "options":{"propagationPolicy":"Foreground"},"dryRun":true}}`

// sendDelete sends a body to a webhook that responds with answer, and returns the decoded requests
// and the response.
func sendDelete(t *testing.T, body string, decision response) (requests []request, sent *admissionv1.AdmissionResponse) {
	t.Helper()
	handler := handlerOf(func(_ context.Context, r request) response {
		requests = append(requests, r)
		return decision
	})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/veto", strings.NewReader(body)))
	if w.Code != http.StatusOK {
		return requests, nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil {
		t.Fatal(err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != "admission.k8s.io/v1" || review.Request != nil {
		t.Errorf("review %+v", review)
	}
	return requests, review.Response
}

func TestHandler_DecodesObjectAndOptions(t *testing.T) {
	requests, sent := sendDelete(t, deleteReview, response{Allowed: true})
	if diff := cmp.Diff(&admissionv1.AdmissionResponse{UID: "u1", Allowed: true}, sent); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
	if len(requests) != 1 {
		t.Fatalf("%d requests", len(requests))
	}
	got := requests[0]
	if got.Object.GetName() != "a" || got.Kind != (schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}) ||
		got.Propagation != metav1.DeletePropagationForeground || !got.DryRun {
		t.Errorf("request %+v", got)
	}
}

func TestHandler_DeniesWithAConflict(t *testing.T) {
	_, sent := sendDelete(t, deleteReview, denied("kept by %s", "a policy"))
	want := &admissionv1.AdmissionResponse{UID: "u1", Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "kept by a policy",
	}}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

func TestHandler_DeniesInvalidRequests(t *testing.T) {
	for name, body := range map[string]string{
		"not a delete":           strings.Replace(deleteReview, "DELETE", "UPDATE", 1),
		"no object":              strings.Replace(deleteReview, `"oldObject"`, `"newObject"`, 1),
		"no options":             strings.Replace(deleteReview, `"options"`, `"choices"`, 1),
		"invalid options":        strings.Replace(deleteReview, `"Foreground"`, `7`, 1),
		"an object without kind": strings.Replace(deleteReview, `"kind":"ConfigMap","metadata"`, `"metadata"`, 1),
		"not a review":           `{"request": null}`,
		"not JSON":               `delete it`,
	} {
		t.Run(name, func(t *testing.T) {
			requests, sent := sendDelete(t, body, response{Allowed: true})
			if len(requests) != 0 || sent != nil && sent.Allowed {
				t.Errorf("requests %+v, response %+v", requests, sent)
			}
		})
	}
}

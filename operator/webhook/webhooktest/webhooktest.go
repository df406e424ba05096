// Package webhooktest sends requests of admission webhooks to handlers, for tests.
package webhooktest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// Send sends an AdmissionReview as JSON to a path, and returns the response. The test fails
// if there is none.
func Send(t testing.TB, handler http.Handler, path, review string) *admissionv1.AdmissionResponse {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(review)))
	var answered admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answered); err != nil || w.Code != http.StatusOK || answered.Response == nil {
		t.Fatalf("status %d, %q: %v", w.Code, w.Body, err)
	}
	return answered.Response
}

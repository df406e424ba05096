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
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/veto"
)

func send(t *testing.T, handler http.Handler, path, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d: %v", w.Code, err)
	}
	return review.Response
}

func TestAWitnessTellsWhoWritesAndLetsItPass(t *testing.T) {
	var told []string
	handler := veto.Witness(func(_ context.Context, user string, object types.UID) { told = append(told, user+" "+string(object)) })
	for _, dry := range []string{"false", "true"} {
		response := send(t, handler, "/canary", `{"request":{"uid":"u","dryRun":`+dry+`,"userInfo":{"username":"system:who"},"oldObject":{"metadata":{"uid":"o"}}}}`)
		if diff := cmp.Diff(&admissionv1.AdmissionResponse{UID: "u", Allowed: true}, response); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"system:who o"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestAPlacerPutsOneFinalizerOnWhatHasItNotAndIsNotBeingDeleted(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("POST /place/{name}", veto.Placer(func(name string) (string, bool) { return "example.com/f", name == "known" }))
	for name, c := range map[string]struct{ path, metadata, want string }{
		"it has none":         {"/place/known", `{"name":"o"}`, `[{"op":"add","path":"/metadata/finalizers","value":["example.com/f"]}]`},
		"it has another":      {"/place/known", `{"finalizers":["other"]}`, `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/f"}]`},
		"it has it":           {"/place/known", `{"finalizers":["example.com/f"]}`, ""},
		"it is being deleted": {"/place/known", `{"deletionTimestamp":"2026-01-01T00:00:00Z"}`, ""},
		"nobody knows which":  {"/place/unknown", `{"name":"o"}`, ""},
		"it can't be read":    {"/place/known", `7`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			response := send(t, mux, c.path, `{"request":{"uid":"u","object":{"metadata":`+c.metadata+`}}}`)
			if !response.Allowed || string(response.Patch) != c.want || (response.PatchType != nil) != (c.want != "") {
				t.Errorf("answered %+v, patch %s", response, response.Patch)
			}
		})
	}
}

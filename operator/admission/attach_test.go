package admission_test

import (
	"net/http"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/webhook/webhooktest"
)

func TestAttachHandler_AddsTheMissingFinalizer(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("POST /place/{name}", admission.AttachHandler(func(name string) (string, bool) { return "example.com/f", name == "known" }))
	for name, c := range map[string]struct{ path, metadata, want string }{
		"no finalizers":     {"/place/known", `{"name":"o"}`, `[{"op":"add","path":"/metadata/finalizers","value":["example.com/f"]}]`},
		"another finalizer": {"/place/known", `{"finalizers":["other"]}`, `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/f"}]`},
		"the finalizer":     {"/place/known", `{"finalizers":["example.com/f"]}`, ""},
		"being deleted":     {"/place/known", `{"deletionTimestamp":"2026-01-01T00:00:00Z"}`, ""},
		"unknown name":      {"/place/unknown", `{"name":"o"}`, ""},
		"invalid object":    {"/place/known", `7`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			response := webhooktest.Send(t, mux, c.path, `{"request":{"uid":"u","object":{"metadata":`+c.metadata+`}}}`)
			if !response.Allowed || string(response.Patch) != c.want || (response.PatchType != nil) != (c.want != "") {
				t.Errorf("response %+v, patch %s", response, response.Patch)
			}
		})
	}
}

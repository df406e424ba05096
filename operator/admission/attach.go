package admission

import (
	"encoding/json"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// AttachHandler serves a mutating webhook that adds a finalizer to objects, by the {name} in the
// request's path. The API server has selected the objects already. After an error, the
// object is allowed unchanged.
func AttachHandler(finalizer func(name string) (string, bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		webhook.ServeReview(w, r, func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
			if placed, ok := finalizer(r.PathValue("name")); ok {
				if response.Patch = finalizerPatch(request.Object.Raw, placed); response.Patch != nil {
					kind := admissionv1.PatchTypeJSONPatch
					response.PatchType = &kind
				}
			}
			return response
		})
	})
}

// finalizerPatch returns a JSON patch that adds a finalizer to an object; nil if the object has it
// or is being deleted.
func finalizerPatch(object []byte, finalizer string) []byte {
	var o metav1.PartialObjectMetadata
	if json.Unmarshal(object, &o) != nil || o.DeletionTimestamp != nil || slices.Contains(o.Finalizers, finalizer) {
		return nil
	}
	change := map[string]any{"op": "add", "path": "/metadata/finalizers", "value": []string{finalizer}}
	if len(o.Finalizers) != 0 {
		change["path"], change["value"] = "/metadata/finalizers/-", finalizer
	}
	patch, err := json.Marshal([]any{change})
	if err != nil {
		return nil
	}
	return patch
}

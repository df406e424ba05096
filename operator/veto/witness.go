package veto

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// review reads a review, has it answered, and sends the answer.
func review(w http.ResponseWriter, r *http.Request, answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBytes)).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("this is no AdmissionReview with a request: %v", err), http.StatusBadRequest)
		return
	}
	review.Response = answer(review.Request)
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // who asked has gone: nobody is left to tell
}

// Witness tells who sends the writes that it is asked about, and the UID of the object.
// All of them pass.
func Witness(tell func(ctx context.Context, user string, object types.UID)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review(w, r, func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			if request.DryRun == nil || !*request.DryRun {
				var o metav1.PartialObjectMetadata
				_ = json.Unmarshal(request.OldObject.Raw, &o) // without a UID it is no canary's
				tell(r.Context(), request.UserInfo.Username, o.UID)
			}
			return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
		})
	})
}

// Placer puts a finalizer on the objects that it is asked about: the one that goes by
// the name in the path of the request, as {name}. It selects nothing, which the API
// server has done. Whatever is wrong, the object passes as it is.
func Placer(finalizer func(name string) (string, bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review(w, r, func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
			if placed, ok := finalizer(r.PathValue("name")); ok {
				if response.Patch = placing(request.Object.Raw, placed); response.Patch != nil {
					kind := admissionv1.PatchTypeJSONPatch
					response.PatchType = &kind
				}
			}
			return response
		})
	})
}

// placing is the change that puts a finalizer on an object; nil if it has it, or is
// being deleted.
func placing(object []byte, finalizer string) []byte {
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

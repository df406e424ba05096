package reviewer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// request is a DELETE of the built-in garbage collector.
type request struct {
	Object      *unstructured.Unstructured // as stored in etcd
	Kind        schema.GroupVersionKind
	Propagation metav1.DeletionPropagation
	DryRun      bool
}

// response is the response to a request. The zero response denies it.
type response struct {
	Allowed bool
	Message string // it is denied
}

// denied returns a response that denies a request.
func denied(format string, args ...any) response {
	return response{Message: fmt.Sprintf(format, args...)}
}

// handlerOf serves the validating webhook with the responses of review, which may be called
// more than once for one DELETE (W-05). Deletes that can't be decoded are denied, since they
// may be about an object that a policy keeps.
func handlerOf(review func(context.Context, request) response) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		webhook.ServeReview(w, r, func(admission *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			parsed, err := parseRequest(admission)
			if err != nil {
				return admissionResponse(admission, denied("%s", err))
			}
			return admissionResponse(admission, review(r.Context(), parsed))
		})
	})
}

// parseRequest decodes a request.
func parseRequest(r *admissionv1.AdmissionRequest) (request, error) {
	if r.Operation != admissionv1.Delete {
		return request{}, fmt.Errorf("unsupported operation %s: only DELETE is supported", r.Operation)
	}
	to := request{
		Object: &unstructured.Unstructured{}, DryRun: r.DryRun != nil && *r.DryRun,
		Kind: schema.GroupVersionKind{Group: r.Kind.Group, Version: r.Kind.Version, Kind: r.Kind.Kind},
	}
	if err := to.Object.UnmarshalJSON(r.OldObject.Raw); err != nil {
		return to, fmt.Errorf("decode object: %w", err)
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal(r.Options.Raw, &options); err != nil {
		return to, fmt.Errorf("decode options: %w", err)
	}
	if options.PropagationPolicy != nil {
		to.Propagation = *options.PropagationPolicy
	}
	return to, nil
}

// admissionResponse denies with a conflict: the collector then assumes that the object has changed
// and reads it again, while it would report any other denial as a failure (W-08).
func admissionResponse(r *admissionv1.AdmissionRequest, decision response) *admissionv1.AdmissionResponse {
	to := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: decision.Allowed}
	if !decision.Allowed {
		to.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: decision.Message,
		}
	}
	return to
}

package reviewer

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// request is a DELETE of the built-in garbage collector.
type request = webhook.Deletion

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
			parsed, err := webhook.DeletionOf(admission)
			if err != nil {
				return admissionResponse(admission, denied("%s", err))
			}
			return admissionResponse(admission, review(r.Context(), parsed))
		})
	})
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

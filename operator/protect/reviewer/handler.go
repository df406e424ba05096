package reviewer

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// request is a user's DELETE.
type request struct {
	webhook.Deletion
	user hostabi.UserInfo
}

// handlerOf serves a validating webhook with the answers of review. Requests that can't be decoded are denied, since they
// may be about an object that a policy protects.
func handlerOf(review func(context.Context, request) answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		webhook.ServeReview(w, r, func(admission *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			deletion, err := webhook.DeletionOf(admission)
			if err != nil {
				return responseOf(admission, answer{message: err.Error()})
			}
			user := hostabi.UserInfo{Username: admission.UserInfo.Username, Groups: admission.UserInfo.Groups}
			return responseOf(admission, review(r.Context(), request{deletion, user}))
		})
	})
}

// responseOf denies with Forbidden, or with ServiceUnavailable if the request may succeed later.
func responseOf(r *admissionv1.AdmissionRequest, a answer) *admissionv1.AdmissionResponse {
	to := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: a.allowed, Warnings: a.warnings}
	if !a.allowed {
		to.Result = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: a.message}
		if a.retry {
			to.Result.Code, to.Result.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
		}
	}
	return to
}

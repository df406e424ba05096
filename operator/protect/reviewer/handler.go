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

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// request is a user's DELETE.
type request struct {
	object      *unstructured.Unstructured // as stored in etcd
	kind        schema.GroupVersionKind
	user        hostabi.UserInfo
	propagation metav1.DeletionPropagation
	dryRun      bool
}

// handlerOf serves a validating webhook with the answers of review. Requests that can't be decoded are denied, since they
// may be about an object that a policy protects.
func handlerOf(review func(context.Context, request) answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		webhook.ServeReview(w, r, func(admission *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			parsed, err := parse(admission)
			if err != nil {
				return responseOf(admission, answer{message: err.Error()})
			}
			return responseOf(admission, review(r.Context(), parsed))
		})
	})
}

// parse decodes a request.
func parse(r *admissionv1.AdmissionRequest) (request, error) {
	if r.Operation != admissionv1.Delete {
		return request{}, fmt.Errorf("unsupported operation %s: only DELETE is supported", r.Operation)
	}
	q := request{
		object: &unstructured.Unstructured{}, dryRun: r.DryRun != nil && *r.DryRun,
		kind: schema.GroupVersionKind{Group: r.Kind.Group, Version: r.Kind.Version, Kind: r.Kind.Kind},
		user: hostabi.UserInfo{Username: r.UserInfo.Username, Groups: r.UserInfo.Groups},
	}
	if err := q.object.UnmarshalJSON(r.OldObject.Raw); err != nil {
		return q, fmt.Errorf("decode object: %w", err)
	}
	var options metav1.DeleteOptions
	if len(r.Options.Raw) != 0 {
		if err := json.Unmarshal(r.Options.Raw, &options); err != nil {
			return q, fmt.Errorf("decode options: %w", err)
		}
	}
	if options.PropagationPolicy != nil {
		q.propagation = *options.PropagationPolicy
	}
	return q, nil
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

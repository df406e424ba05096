package companion

import (
	"context"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// CanaryHandler serves a webhook that calls report with the user of each write and the UID of
// its object. All writes are allowed.
func CanaryHandler(report func(ctx context.Context, user string, object types.UID)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		webhook.ServeReview(w, r, func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			if request.DryRun == nil || !*request.DryRun {
				var o metav1.PartialObjectMetadata
				_ = json.Unmarshal(request.OldObject.Raw, &o) // without a UID it is not a canary
				report(r.Context(), request.UserInfo.Username, o.UID)
			}
			return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
		})
	})
}

package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
)

// maxReviewBytes is the maximum size of a review, which contains one object.
const maxReviewBytes = 8 << 20

// ServeReview decodes an AdmissionReview, and responds with what respond returns for its
// request.
func ServeReview(w http.ResponseWriter, r *http.Request, respond func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReviewBytes)).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("not an AdmissionReview with a request: %v", err), http.StatusBadRequest)
		return
	}
	review.Response = respond(review.Request)
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the client has disconnected
}

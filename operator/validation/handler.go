package validation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/slots"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

const (
	// timeout limits a validation. The API server waits longer: see webhookTimeout.
	timeout = 5 * time.Second

	// maxValidations is how many validations may be in progress in one replica, and maxSlotWait how long one waits
	// for others of its namespace.
	maxValidations = 8
	maxSlotWait    = 2 * time.Second

	// maxMessage is the maximum length in bytes of a message: compilers may say much.
	maxMessage = 4 << 10
)

// handler answers reviews.
type handler struct {
	scheme   *runtime.Scheme
	validate func(context.Context, string, runtime.Object) (Result, error)
	slots    *slots.Slots
}

// Handler serves the webhook.
func (v *Validator) Handler() (http.Handler, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make scheme: %w", err)
	}
	return &handler{scheme: scheme, validate: v.Validate, slots: slots.New(maxValidations, maxSlotWait)}, nil
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	webhook.ServeReview(w, r, func(q *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return h.respond(r.Context(), q) })
}

// respond denies a resource with a problem. What was not checked is allowed, with a warning.
func (h *handler) respond(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name := nameOf(r)
	result, err := h.check(ctx, r)
	to := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: result.Problem == ""}
	switch {
	case !to.Allowed:
		to.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: name + ": " + shorten(result.Problem),
		}
	case err != nil:
		to.Warnings = []string{fmt.Sprintf("%s was not checked: %s; see its conditions", name, shorten(err.Error()))}
	case !result.Checked:
		to.Warnings = []string{name + " could not be checked in time; see its conditions"}
	}
	return to
}

func (h *handler) check(ctx context.Context, r *admissionv1.AdmissionRequest) (Result, error) {
	o, err := h.scheme.New(schema.GroupVersionKind(r.Kind))
	if err != nil {
		return Result{}, err
	}
	if err := json.Unmarshal(r.Object.Raw, o); err != nil {
		return Result{}, fmt.Errorf("decode: %w", err)
	}
	release, ok := h.slots.Acquire(ctx, r.Namespace)
	if !ok {
		return Result{}, nil
	}
	defer release()
	return h.validate(ctx, r.Kind.Kind, o)
}

// nameOf returns the kind and name of the resource of a request, which may have a generated name.
func nameOf(r *admissionv1.AdmissionRequest) string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return strings.TrimSpace(r.Kind.Kind + " " + name)
}

func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

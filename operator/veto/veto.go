// Package veto answers the API server when another collector wants to delete an
// object: it speaks the language of admission webhooks, and serves it. It also tells
// who that collector is, and puts finalizers on objects as they are created, where the
// API server can't do that itself.
//
// It decides nothing: whoever judges is handed in. What can't be understood is
// refused, since it may be about an object that a policy keeps.
package veto

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mostBytes bounds a request, which has one object in it.
const mostBytes = 8 << 20

// Request is a DELETE that the other collector has sent.
type Request struct {
	Object      *unstructured.Unstructured // as it is stored
	Kind        schema.GroupVersionKind
	Propagation metav1.DeletionPropagation
	DryRun      bool
}

// Answer is what becomes of it. The zero Answer refuses.
type Answer struct {
	Passes bool
	Why    string // it is refused
}

// Refuse returns the Answer that refuses.
func Refuse(format string, args ...any) Answer { return Answer{Why: fmt.Sprintf(format, args...)} }

// Judge answers requests, several at a time.
type Judge func(context.Context, Request) Answer

// Handler serves the webhook. One DELETE may be asked about more than once (W-05).
func Handler(judge Judge) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review(w, r, func(asked *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			request, err := requestOf(asked)
			if err != nil {
				return respond(asked, Refuse("%s", err))
			}
			return respond(asked, judge(r.Context(), request))
		})
	})
}

// requestOf reads a request.
func requestOf(r *admissionv1.AdmissionRequest) (Request, error) {
	if r.Operation != admissionv1.Delete {
		return Request{}, fmt.Errorf("it is a %s, and only a DELETE can be judged", r.Operation)
	}
	to := Request{
		Object: &unstructured.Unstructured{}, DryRun: r.DryRun != nil && *r.DryRun,
		Kind: schema.GroupVersionKind{Group: r.Kind.Group, Version: r.Kind.Version, Kind: r.Kind.Kind},
	}
	if err := to.Object.UnmarshalJSON(r.OldObject.Raw); err != nil {
		return to, fmt.Errorf("read the object: %w", err)
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal(r.Options.Raw, &options); err != nil {
		return to, fmt.Errorf("read the options: %w", err)
	}
	if options.PropagationPolicy != nil {
		to.Propagation = *options.PropagationPolicy
	}
	return to, nil
}

// respond refuses with a conflict: the collector takes that for news about the object,
// reads it again, and believes what it finds, while it would take a denial for a
// failure (W-08).
func respond(r *admissionv1.AdmissionRequest, answer Answer) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: answer.Passes}
	if !answer.Passes {
		response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: answer.Why,
		}
	}
	return response
}

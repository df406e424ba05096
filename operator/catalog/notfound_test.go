package catalog

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestConfirmsNotFound(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	status := func(s metav1.Status) error { return &apierrors.StatusError{ErrStatus: s} }
	unknownType := status(metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	})
	tests := map[string]struct {
		err      error
		resource schema.GroupResource
		want     bool
	}{
		"no error":                       {nil, pods, false},
		"some error":                     {errors.New("connection refused"), pods, false},
		"no such object":                 {apierrors.NewNotFound(pods, "a"), pods, true},
		"no such object, wrapped":        {fmt.Errorf("read: %w", apierrors.NewNotFound(widgets, "a")), widgets, true},
		"another object":                 {apierrors.NewNotFound(pods, "b"), pods, false},
		"another group":                  {apierrors.NewNotFound(pods, "a"), widgets, false},
		"type not known":                 {unknownType, pods, false},
		"type not known, no details":     {status(metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound}), pods, false},
		"404 of another reason":          {status(metav1.Status{Code: 404, Reason: "Lost", Details: &metav1.StatusDetails{Name: "a"}}), pods, false},
		"404 of no reason":               {status(metav1.Status{Code: 404, Details: &metav1.StatusDetails{Name: "a"}}), pods, false},
		"a proxy's page":                 {apierrors.NewGenericServerResponse(404, "get", pods, "a", "404 page not found", 0, true), pods, false},
		"a proxy's page, wrapped":        {fmt.Errorf("read: %w", apierrors.NewGenericServerResponse(404, "get", widgets, "a", "<html>", 0, true)), widgets, false},
		"gone":                           {apierrors.NewResourceExpired("too old"), pods, false},
		"conflict":                       {apierrors.NewConflict(pods, "a", errors.New("uid")), pods, false},
		"forbidden":                      {apierrors.NewForbidden(pods, "a", errors.New("no")), pods, false},
		"unavailable aggregated service": {apierrors.NewServiceUnavailable("service unavailable"), widgets, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ConfirmsNotFound(test.err, test.resource, "a"); got != test.want {
				t.Errorf("Denies(%v) = %v, want %v", test.err, got, test.want)
			}
		})
	}
}

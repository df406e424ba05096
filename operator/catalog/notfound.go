package catalog

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ConfirmsNotFound reports whether err is the response of an API server that serves the resource
// and has no object with that name.
//
// A 404 can have other causes. An API server that does not serve the type responds with a
// Status without details. A proxy, or a load balancer before an API server that is
// starting, responds with its own page, which the client converts to a Status; that one
// has the name of the object, but is marked as an unexpected response.
func ConfirmsNotFound(err error, resource schema.GroupResource, name string) bool {
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) {
		return false
	}
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) {
		return false
	}
	status := apiStatus.Status()
	return status.Reason == metav1.StatusReasonNotFound &&
		status.Details != nil &&
		status.Details.Name == name &&
		status.Details.Group == resource.Group
}

package catalog

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Denies reports whether err is an API server's own word that it serves the
// resource and has no object of that name.
//
// A 404 can mean other things. An API server that does not know the type says
// so in a Status without details. A proxy, or a load balancer before an API
// server that is starting, sends a page of its own, of which the client makes
// a Status; that one names the object that was asked for, but is marked as an
// unexpected response.
func Denies(err error, resource schema.GroupResource, name string) bool {
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) {
		return false
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	status := answer.Status()
	return status.Reason == metav1.StatusReasonNotFound &&
		status.Details != nil &&
		status.Details.Name == name &&
		status.Details.Group == resource.Group
}

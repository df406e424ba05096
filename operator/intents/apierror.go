package intents

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

// apiError converts the error of an API call to a problem.
func (e *Executor) apiError(action string, account policies.ServiceAccount, c apiCall, err error) error {
	p := &intentError{reasonOf(c, err), fmt.Sprintf("%s: %s", action, egress.RedactAddresses(err))}
	switch {
	case p.reason == hostabi.ErrorForbidden:
		p.message = fmt.Sprintf("%s: %s", describeForbidden(account, c), egress.RedactAddresses(err))
	case errors.Is(err, errResponseTooLarge):
		p.message = fmt.Sprintf("%s: response has more than %d bytes", action, maxResponseBytes)
	case p.reason == hostabi.ErrorUnavailable && c.method != http.MethodGet && !hasResponse(err):
		p.message += "; the write may have succeeded"
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		p.message += "; apply does not take ownership of conflicting fields: remove the field, or use a patch of type merge"
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && p.reason == hostabi.ErrorUnavailable {
		at := e.options.Now().Add(min(time.Duration(seconds)*time.Second, maxRetryAfter))
		p.message += "; retry at " + at.UTC().Format(time.RFC3339)
	}
	return p
}

// reasonOf classifies the error of an API call. Responses of proxies are not trusted:
// NotFound requires that the response names the object.
func reasonOf(c apiCall, err error) hostabi.ErrorReason {
	if c.name != "" && catalog.ConfirmsNotFound(err, c.resource.GroupResource(), c.name) {
		return hostabi.ErrorNotFound
	}
	if errors.Is(err, errResponseTooLarge) {
		return hostabi.ErrorInvalid
	}
	if apierrors.IsUnexpectedServerError(err) {
		return hostabi.ErrorUnavailable
	}
	if isUIDMismatch(err) {
		return hostabi.ErrorConflict
	}
	for _, r := range []struct {
		is     func(error) bool
		reason hostabi.ErrorReason
	}{
		{apierrors.IsAlreadyExists, hostabi.ErrorAlreadyExists},
		{apierrors.IsConflict, hostabi.ErrorConflict},
		{apierrors.IsForbidden, hostabi.ErrorForbidden},
		{apierrors.IsResourceExpired, hostabi.ErrorExpired},
		{apierrors.IsGone, hostabi.ErrorExpired},
		{apierrors.IsBadRequest, hostabi.ErrorInvalid},
		{apierrors.IsInvalid, hostabi.ErrorInvalid},
		{apierrors.IsMethodNotSupported, hostabi.ErrorInvalid},
		{apierrors.IsNotAcceptable, hostabi.ErrorInvalid},
		{apierrors.IsUnsupportedMediaType, hostabi.ErrorInvalid},
		{apierrors.IsRequestEntityTooLargeError, hostabi.ErrorInvalid},
	} {
		if r.is(err) {
			return r.reason
		}
	}
	if c.method == http.MethodPost && apierrors.IsNotFound(err) {
		return hostabi.ErrorInvalid // the namespace does not exist
	}
	return hostabi.ErrorUnavailable
}

// describeForbidden describes the missing permission in RBAC terms.
func describeForbidden(account policies.ServiceAccount, c apiCall) string {
	verb := map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch", http.MethodPut: "update", http.MethodDelete: "delete",
	}[c.method]
	if c.method == http.MethodGet && c.name == "" {
		verb = "list"
	}
	text := fmt.Sprintf("service account %s/%s may not %s %s", account.Namespace, account.Name, verb, c.resource.GroupResource())
	if c.name != "" {
		text += fmt.Sprintf(" %q", c.name)
	}
	if c.namespace != "" {
		text += " in namespace " + c.namespace
	}
	return text
}

// hasResponse reports whether the error is a response other than a timeout.
func hasResponse(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && !apierrors.IsTimeout(err)
}

// isUIDMismatch reports whether a patch names another uid, which the API server reports as an
// attempt to change it.
func isUIDMismatch(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

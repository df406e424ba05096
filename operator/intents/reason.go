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

// problemOf makes a problem of what the API server said to a call of an account, or did
// not say.
func (e *Executor) problemOf(doing string, who policies.Account, c call, err error) error {
	p := &problem{reasonOf(c, err), fmt.Sprintf("%s: %s", doing, egress.Cause(err))}
	switch {
	case p.reason == hostabi.ErrorForbidden:
		p.message = fmt.Sprintf("%s: %s", forbidden(who, c), egress.Cause(err))
	case errors.Is(err, errLarge):
		p.message = fmt.Sprintf("%s: the answer has more than %d bytes", doing, mostAnswer)
	case p.reason == hostabi.ErrorUnavailable && c.method != http.MethodGet && !answered(err):
		p.message += "; whether it was done is not known"
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		p.message += "; apply takes over nothing that is another's: leave the field out, or write a patch of type merge"
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && p.reason == hostabi.ErrorUnavailable {
		at := e.options.Now().Add(min(time.Duration(seconds)*time.Second, longestWait))
		p.message += "; try again at " + at.UTC().Format(time.RFC3339)
	}
	return p
}

// reasonOf sorts the API server's answer. A proxy's answer is none. That there is
// no such object counts only where the answer names it.
func reasonOf(c call, err error) hostabi.ErrorReason {
	if c.name != "" && catalog.Denies(err, c.resource.GroupResource(), c.name) {
		return hostabi.ErrorNotFound
	}
	if errors.Is(err, errLarge) {
		return hostabi.ErrorInvalid
	}
	if apierrors.IsUnexpectedServerError(err) {
		return hostabi.ErrorUnavailable
	}
	if isAnother(err) {
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
		return hostabi.ErrorInvalid // there is no such namespace
	}
	return hostabi.ErrorUnavailable
}

// forbidden says what was forbidden to whom, in the words of roles.
func forbidden(who policies.Account, c call) string {
	verb := map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch", http.MethodPut: "update", http.MethodDelete: "delete",
	}[c.method]
	if c.method == http.MethodGet && c.name == "" {
		verb = "list"
	}
	text := fmt.Sprintf("service account %s/%s may not %s %s", who.Namespace, who.Name, verb, c.resource.GroupResource())
	if c.name != "" {
		text += fmt.Sprintf(" %q", c.name)
	}
	if c.namespace != "" {
		text += " in namespace " + c.namespace
	}
	return text
}

// answered tells that somebody said something else than that it took too long.
func answered(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && !apierrors.IsTimeout(err)
}

// isAnother tells that a patch was for an object of another uid: to the API server
// that is an attempt to change it.
func isAnother(err error) bool {
	answer := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &answer) || answer.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(answer.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

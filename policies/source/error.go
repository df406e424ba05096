package source

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/gleaner-dev/gleaner/policies/source/egress"
	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

// Reason is why there is no module, in a word, for a condition.
type Reason string

const (
	BadReference   Reason = "BadReference"   // what the resource says makes no sense
	BadPullSecret  Reason = "BadPullSecret"  // a pull secret can't be read
	Refused        Reason = "Refused"        // it leads where it must not
	NotFound       Reason = "NotFound"       // there is nothing
	Unauthorized   Reason = "Unauthorized"   // it is not given to us
	Unreachable    Reason = "Unreachable"    // no answer, or none that helps
	Untrusted      Reason = "Untrusted"      // the server does not prove who it is
	TooLarge       Reason = "TooLarge"       // more than the limits allow
	DigestMismatch Reason = "DigestMismatch" // something else than what was named
	BadArtifact    Reason = "BadArtifact"    // something else than a module
)

// Error is a module that could not be fetched. The message is for the author of
// the resource, holds no secrets, and says what to write instead.
type Error struct {
	Reason  Reason
	Message string
	// Temporary tells that trying again may help although nobody changes anything.
	// Without it, it may help once somebody has: soon, it does not.
	Temporary bool

	cause error
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what the error came from. Its text may hold a secret.
func (e *Error) Unwrap() error { return e.cause }

func fault(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// placed puts in front of an *Error where the thing at fault is from.
func placed(from string, err error) error {
	e := new(Error)
	if !errors.As(err, &e) {
		return err
	}
	at := *e
	at.Message = from + ": " + e.Message
	return &at
}

// explain makes an *Error of what went wrong on the network, but for the end of
// the caller's context.
func explain(ctx context.Context, from string, err error) error {
	if already := new(Error); errors.As(err, &already) {
		return placed(from, err)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("fetch %s: %w", from, ctx.Err())
	}
	e := classify(ctx, err)
	e.Message = "fetch " + from + ": " + e.Message
	e.cause = err
	return e
}

func classify(ctx context.Context, err error) *Error {
	var (
		unreached *egress.Unreached
		refusal   *egress.Refusal
		status    *oci.StatusError
		size      *oci.SizeError
		digest    *oci.DigestError
		untrusted *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &unreached):
		return &Error{Reason: Unreachable, Message: unreached.Error(), Temporary: true}
	case errors.As(err, &refusal):
		return fault(Refused, "%s", refusal.Message)
	case errors.As(err, &status):
		return classifyStatus(status)
	case errors.As(err, &size):
		return fault(TooLarge, "%s", size)
	case errors.As(err, &digest):
		return &Error{Reason: DigestMismatch, Message: digest.Error() + ": the registry is not to be trusted, or is broken", Temporary: true}
	case errors.As(err, &untrusted):
		return fault(Untrusted, "%s: use a server with a certificate that the operator believes, or have it told of the authority", bare(err))
	case errors.Is(err, http.ErrSchemeMismatch):
		return fault(Untrusted, "the server does not speak HTTPS: use one that does")
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return &Error{Reason: Unreachable, Message: "it took too long", Temporary: true}
	}
	return &Error{Reason: Unreachable, Message: egress.Cause(err), Temporary: true}
}

func classifyStatus(s *oci.StatusError) *Error {
	e := &Error{Reason: Unreachable, Message: s.Error()}
	switch {
	case s.Status == http.StatusUnauthorized || s.Status == http.StatusForbidden:
		e.Reason = Unauthorized
	case s.Status == http.StatusNotFound || s.Status == http.StatusGone:
		e.Reason = NotFound
		e.Message += ": push it there, or correct the name"
	case s.Status == http.StatusTooManyRequests || s.Status == http.StatusRequestTimeout || s.Status >= 500:
		e.Temporary = true
	}
	return e
}

// bare is an error without the URL that net/http puts in front, which may be
// signed.
func bare(err error) error {
	if of := new(url.Error); errors.As(err, &of) {
		return of.Err
	}
	return err
}

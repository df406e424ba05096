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

// Reason is the reason of a failed fetch, for a condition.
type Reason string

const (
	InvalidReference  Reason = "InvalidReference"  // the source in the resource is invalid
	InvalidPullSecret Reason = "InvalidPullSecret" // a pull secret is invalid
	AddressNotAllowed Reason = "AddressNotAllowed" // the address must not be reached
	NotFound          Reason = "NotFound"          // the module does not exist
	Unauthorized      Reason = "Unauthorized"      // the server denies access
	Unreachable       Reason = "Unreachable"       // no response, or an error of the server
	TLSError          Reason = "TLSError"          // the server's certificate cannot be verified
	TooLarge          Reason = "TooLarge"          // more than the limits allow
	DigestMismatch    Reason = "DigestMismatch"    // the content has another digest
	InvalidArtifact   Reason = "InvalidArtifact"   // the content is not a module
	NotSigned         Reason = "NotSigned"         // a signature is required, and there is none
	InvalidSignature  Reason = "InvalidSignature"  // no signature is by a trusted signer
	InvalidSigners    Reason = "InvalidSigners"    // the trusted signers are invalid
)

// Error is a module that could not be fetched. The message is for the author of the
// resource, contains no secrets, and says what to write instead.
type Error struct {
	Reason  Reason
	Message string
	// Temporary reports whether a retry may succeed without changes. Otherwise a
	// retry soon is of no use.
	Temporary bool

	cause error
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause. Its text may contain a secret.
func (e *Error) Unwrap() error { return e.cause }

func errorf(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// withOrigin adds the origin to the message of an *Error.
func withOrigin(from string, err error) error {
	e := new(Error)
	if !errors.As(err, &e) {
		return err
	}
	at := *e
	at.Message = from + ": " + e.Message
	return &at
}

// explain converts a network error to an *Error, unless the caller's context has
// ended.
func explain(ctx context.Context, from string, err error) error {
	if already := new(Error); errors.As(err, &already) {
		return withOrigin(from, err)
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
		unreached *egress.UnreachableHostError
		refusal   *egress.DeniedError
		status    *oci.StatusError
		size      *oci.SizeError
		digest    *oci.DigestError
		untrusted *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &unreached):
		return &Error{Reason: Unreachable, Message: unreached.Error(), Temporary: true}
	case errors.As(err, &refusal):
		return errorf(AddressNotAllowed, "%s", refusal.Message)
	case errors.As(err, &status):
		return classifyStatus(status)
	case errors.As(err, &size):
		return errorf(TooLarge, "%s", size)
	case errors.As(err, &digest):
		return &Error{Reason: DigestMismatch, Message: digest.Error() + ": the registry returns wrong content", Temporary: true}
	case errors.As(err, &untrusted):
		return errorf(TLSError, "%s: use a server with a certificate that the operator trusts, or add its CA to the operator", trimURL(err))
	case errors.Is(err, http.ErrSchemeMismatch):
		return errorf(TLSError, "the server does not support HTTPS: use one that does")
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return &Error{Reason: Unreachable, Message: "timeout", Temporary: true}
	}
	return &Error{Reason: Unreachable, Message: egress.RedactAddresses(err), Temporary: true}
}

func classifyStatus(s *oci.StatusError) *Error {
	e := &Error{Reason: Unreachable, Message: s.Error()}
	switch {
	case s.Status == http.StatusUnauthorized || s.Status == http.StatusForbidden:
		e.Reason = Unauthorized
	case s.Status == http.StatusNotFound || s.Status == http.StatusGone:
		e.Reason = NotFound
		e.Message += ": push it, or correct the name"
	case s.Status == http.StatusTooManyRequests || s.Status == http.StatusRequestTimeout || s.Status >= 500:
		e.Temporary = true
	}
	return e
}

// trimURL removes the URL, which may be signed, from an error of net/http.
func trimURL(err error) error {
	if of := new(url.Error); errors.As(err, &of) {
		return of.Err
	}
	return err
}

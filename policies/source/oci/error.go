package oci

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"
)

// Limits of what is read and shown of an error response.
const (
	maxErrorBody    = 64 << 10 // bytes
	maxErrorMessage = 200      // characters
)

// StatusError is a response with an error status.
type StatusError struct {
	Operation string // the operation
	Status    int    // HTTP status
	Code      string // error code of the registry; may be empty
	Message   string // may be empty
}

// Error implements error.
func (e *StatusError) Error() string {
	s := fmt.Sprintf("%s: %d %s", e.Operation, e.Status, http.StatusText(e.Status))
	if e.Code != "" {
		s += ": " + e.Code
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// SizeError is a response that exceeds its size limit.
type SizeError struct {
	Content string
	Limit   int64 // bytes
}

// Error implements error.
func (e *SizeError) Error() string {
	return fmt.Sprintf("%s is larger than the limit of %d bytes", e.Content, e.Limit)
}

// DigestError is a response with the wrong digest. The registry or an intermediary
// caused it.
type DigestError struct {
	Content string
	Want    string // digest
	Got     string // digest, or a description of the content
}

// Error implements error.
func (e *DigestError) Error() string {
	return fmt.Sprintf("%s has the wrong digest: want %s, got %s", e.Content, e.Want, e.Got)
}

// MalformedError is an invalid response.
type MalformedError struct {
	Operation string
	Reason    string
}

// Error implements error.
func (e *MalformedError) Error() string { return e.Operation + ": " + e.Reason }

// statusError reads the error of a registry, and closes the body.
func statusError(what string, r *http.Response) *StatusError {
	defer r.Body.Close()
	e := &StatusError{Operation: what, Status: r.StatusCode}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	if err != nil {
		return e // the status is sufficient
	}
	var said struct {
		Errors []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &said) == nil && len(said.Errors) != 0 {
		e.Code, e.Message = printable(said.Errors[0].Code), printable(said.Errors[0].Message)
	}
	return e
}

// printable makes untrusted text printable.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	if runes := []rune(s); len(runes) > maxErrorMessage {
		s = string(runes[:maxErrorMessage]) + "…"
	}
	return s
}

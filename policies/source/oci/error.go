package oci

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"
)

// What is read of an answer that is no success, and shown of it.
const (
	mostErrorBody    = 64 << 10 // bytes
	mostErrorMessage = 200      // characters
)

// StatusError is an answer other than success.
type StatusError struct {
	What    string // that was being done
	Status  int    // of HTTP
	Code    string // of the registry; may be empty
	Message string // may be empty
}

// Error implements error.
func (e *StatusError) Error() string {
	s := fmt.Sprintf("%s: %d %s", e.What, e.Status, http.StatusText(e.Status))
	if e.Code != "" {
		s += ": " + e.Code
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// SizeError is an answer that is larger than it may be.
type SizeError struct {
	What  string
	Limit int64 // bytes
}

// Error implements error.
func (e *SizeError) Error() string {
	return fmt.Sprintf("%s is larger than the limit of %d bytes", e.What, e.Limit)
}

// DigestError is an answer that is not what was asked for. The registry is to
// blame, or somebody on the way.
type DigestError struct {
	What string
	Want string // digest
	Got  string // digest, or another thing that is wrong
}

// Error implements error.
func (e *DigestError) Error() string {
	return fmt.Sprintf("%s was asked for by %s, and what came is %s", e.What, e.Want, e.Got)
}

// MalformedError is an answer that makes no sense.
type MalformedError struct {
	What string
	Why  string
}

// Error implements error.
func (e *MalformedError) Error() string { return e.What + ": " + e.Why }

// statusError reads what a registry says, and closes the body.
func statusError(what string, r *http.Response) *StatusError {
	defer r.Body.Close()
	e := &StatusError{What: what, Status: r.StatusCode}
	body, err := io.ReadAll(io.LimitReader(r.Body, mostErrorBody))
	if err != nil {
		return e // the status says enough
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

// printable makes a stranger's text fit to be shown.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	if runes := []rune(s); len(runes) > mostErrorMessage {
		s = string(runes[:mostErrorMessage]) + "…"
	}
	return s
}

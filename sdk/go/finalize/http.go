package finalize

import (
	"strconv"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// HTTP sends a request and returns the response, with any status. [Steps.Call] also
// checks the status.
func (s *Steps) HTTP(id string, in hostabi.HTTPIntent) hostabi.HTTPResult {
	intent := hostabi.Intent{HTTP: &in}
	result, ok := s.request(id, intent)
	switch {
	case !ok:
		return hostabi.HTTPResult{}
	case result.Error != nil:
		s.handleError(intent, *result.Error)
		return hostabi.HTTPResult{}
	case result.HTTP == nil:
		s.Wait(0, describe(intent)+": the result has no response")
		return hostabi.HTTPResult{}
	}
	return *result.HTTP
}

// Call sends a request and checks its status: 2xx returns true, 404 and 410 return
// false. For others see [Steps.Check].
func (s *Steps) Call(id string, in hostabi.HTTPIntent) (hostabi.HTTPResult, bool) {
	response := s.HTTP(id, in)
	if s.Stopped() {
		return hostabi.HTTPResult{}, false
	}
	found := s.check(describe(hostabi.Intent{HTTP: &in}), response)
	return response, found
}

// Check checks the status of a response: true for 2xx, false for 404 and 410. With
// 408, 425, 429 and 5xx the run waits, at least for the duration of Retry-After;
// with any other it fails, with the status and the beginning of the body.
func (s *Steps) Check(response hostabi.HTTPResult) bool {
	if s.stopped() {
		return false
	}
	return s.check("the request", response)
}

func (s *Steps) check(what string, response hostabi.HTTPResult) bool {
	status := response.Status
	switch {
	case status >= 200 && status < 300:
		return true
	case status == 404, status == 410:
		return false
	case status == 408, status == 425, status == 429, status >= 500:
		s.Wait(max(backoff(s.req.Attempt), retryAfter(response)), formatResponse(what, response))
	default:
		s.Fail(formatResponse(what, response))
	}
	return false
}

// formatResponse formats a response for people.
func formatResponse(what string, response hostabi.HTTPResult) string {
	text := what + " returned status " + strconv.Itoa(response.Status)
	if body := strings.TrimSpace(response.Body); body != "" {
		text += ": " + truncate(body, 256)
	}
	return text
}

// retryAfter returns the duration of Retry-After, up to an hour. Dates are ignored.
func retryAfter(response hostabi.HTTPResult) time.Duration {
	seconds, err := strconv.Atoi(strings.TrimSpace(response.Headers["Retry-After"]))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}

package finalize

import (
	"strconv"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// HTTP sends a request, and gives the response, whatever its status is. See
// [Steps.Call] for one that is judged.
func (s *Steps) HTTP(id string, in hostabi.HTTPIntent) hostabi.HTTPResult {
	intent := hostabi.Intent{HTTP: &in}
	result, ok := s.ask(id, intent)
	switch {
	case !ok:
		return hostabi.HTTPResult{}
	case result.Error != nil:
		s.trouble(intent, *result.Error)
		return hostabi.HTTPResult{}
	case result.HTTP == nil:
		s.Wait(0, describe(intent)+": the result has no response")
		return hostabi.HTTPResult{}
	}
	return *result.HTTP
}

// Call sends a request whose response has to be 2xx, or 404 or 410, for which it
// is false: what is to be deleted is gone. Others are as for [Steps.Check].
func (s *Steps) Call(id string, in hostabi.HTTPIntent) (hostabi.HTTPResult, bool) {
	response := s.HTTP(id, in)
	if s.Stopped() {
		return hostabi.HTTPResult{}, false
	}
	found := s.check(describe(hostabi.Intent{HTTP: &in}), response)
	return response, found
}

// Check judges a response: true for 2xx, false for 404 and 410. With 408, 425, 429
// and 5xx the run waits, at least as long as Retry-After says; with any other it
// fails, with the status and the beginning of the body.
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
		s.Wait(max(backoff(s.request.Attempt), retryAfter(response)), said(what, response))
	default:
		s.Fail(said(what, response))
	}
	return false
}

// said is a response for people.
func said(what string, response hostabi.HTTPResult) string {
	text := what + " was answered " + strconv.Itoa(response.Status)
	if body := strings.TrimSpace(response.Body); body != "" {
		text += ": " + shortened(body, 256)
	}
	return text
}

// retryAfter is how long a server wants to be left alone, up to an hour. One that
// names a date is not listened to.
func retryAfter(response hostabi.HTTPResult) time.Duration {
	seconds, err := strconv.Atoi(strings.TrimSpace(response.Headers["Retry-After"]))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}

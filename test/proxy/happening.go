package proxy

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A FaultHandler responds to a request instead of the API server.
type FaultHandler = func(http.ResponseWriter, *http.Request, http.Handler)

// InNamespace matches calls about objects in a namespace, by these verbs or by any.
func InNamespace(namespace string, verbs ...string) func(Call) bool {
	return func(c Call) bool {
		return c.IsResourceRequest && c.Namespace == namespace && matchesVerb(c.Verb, verbs)
	}
}

// ForObject matches calls about one object.
func ForObject(namespace, name string, verbs ...string) func(Call) bool {
	return func(c Call) bool { return InNamespace(namespace, verbs...)(c) && c.Name == name }
}

// ForGroup matches calls about the resources of a group, and its discovery.
func ForGroup(group string, verbs ...string) func(Call) bool {
	return func(c Call) bool {
		if !c.IsResourceRequest {
			return len(verbs) == 0 && len(c.URL.Path) >= len("/apis/"+group) && c.URL.Path[:len("/apis/"+group)] == "/apis/"+group
		}
		return c.APIGroup == group && matchesVerb(c.Verb, verbs)
	}
}

func matchesVerb(verb string, verbs []string) bool {
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return len(verbs) == 0
}

// OneIn matches one in oneIn of the calls that match, at random with a fixed
// seed.
func OneIn(oneIn int, matches func(Call) bool) func(Call) bool {
	var mu sync.Mutex // covers dice
	dice := rand.New(rand.NewPCG(20261121, 7))
	return func(c Call) bool {
		if !matches(c) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(oneIn) == 0
	}
}

// Page responds with a text that is not a Kubernetes response.
func Page(code int, contentType, text string) FaultHandler {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// RespondStatus responds with a Status.
func RespondStatus(status metav1.Status) FaultHandler {
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status = metav1.StatusFailure
	body, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	return Page(int(status.Code), "application/json", string(body))
}

// TooManyRequests responds with 429 and Retry-After.
func TooManyRequests(after time.Duration) FaultHandler {
	answer := RespondStatus(metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "too many requests"})
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
		answer(w, r, pass)
	}
}

// Conflict responds with 409, as a webhook may.
var Conflict = RespondStatus(metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "refused with a 409"})

// InternalError responds with 500.
var InternalError = RespondStatus(metav1.Status{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "out of order"})

// Unavailable responds with 503, like a proxy without a backend.
var Unavailable = Page(http.StatusServiceUnavailable, "text/plain", "no healthy upstream")

// Slow forwards a request after a delay.
func Slow(d time.Duration) FaultHandler {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			pass.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}
}

// DroppedConnection closes the connection without forwarding the request.
func DroppedConnection(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// LostResponse forwards a request, and drops the response.
func LostResponse(_ http.ResponseWriter, r *http.Request, pass http.Handler) {
	pass.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// TruncatedResponse forwards a request, and closes the connection in the middle of the response.
func TruncatedResponse(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	answer := httptest.NewRecorder()
	pass.ServeHTTP(answer, r)
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	body := answer.Body.Bytes()
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Expired responds to the start of a watch with 410.
var Expired = RespondStatus(metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})

// ExpiredInWatch starts a watch, and sends an error event with 410.
func ExpiredInWatch(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",`+
		`"message":"too old resource version","reason":"Expired","code":410}}`+"\n")
}

// TruncatedWatch starts a watch, and closes the connection in the middle of an event.
func TruncatedWatch(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"type":"DELETED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","meta`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// ForResources matches calls about any objects, by these verbs or by any.
func ForResources(verbs ...string) func(Call) bool {
	return func(c Call) bool { return c.IsResourceRequest && matchesVerb(c.Verb, verbs) }
}

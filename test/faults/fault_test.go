package faults

import (
	"context"
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

// happening is what happens to a request in place of being passed on.
type happening = func(http.ResponseWriter, *http.Request, http.Handler)

func contextOf(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithCancel(r.Context())
}

// in matches calls about objects in a namespace, by these verbs or by any.
func in(namespace string, verbs ...string) func(call) bool {
	return func(c call) bool {
		return c.IsResourceRequest && c.Namespace == namespace && isAmong(c.Verb, verbs)
	}
}

// about matches calls about one object.
func about(namespace, name string, verbs ...string) func(call) bool {
	return func(c call) bool { return in(namespace, verbs...)(c) && c.Name == name }
}

// ofGroup matches calls about the resources of a group, and its discovery.
func ofGroup(group string, verbs ...string) func(call) bool {
	return func(c call) bool {
		if !c.IsResourceRequest {
			return len(verbs) == 0 && len(c.URL.Path) >= len("/apis/"+group) && c.URL.Path[:len("/apis/"+group)] == "/apis/"+group
		}
		return c.APIGroup == group && isAmong(c.Verb, verbs)
	}
}

func isAmong(verb string, verbs []string) bool {
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return len(verbs) == 0
}

// sometimes matches one in so many of the calls that match. What is random
// about it is the same each time.
func sometimes(oneIn int, matches func(call) bool) func(call) bool {
	var mu sync.Mutex // covers dice
	dice := rand.New(rand.NewPCG(20261121, 7))
	return func(c call) bool {
		if !matches(c) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(oneIn) == 0
	}
}

// page answers with a text, as something does that is not an API server.
func page(code int, contentType, text string) happening {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// says answers with a Status.
func says(status metav1.Status) happening {
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status = metav1.StatusFailure
	body, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	return page(int(status.Code), "application/json", string(body))
}

// busy answers 429, and when to come again.
func busy(after time.Duration) happening {
	answer := says(metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "come again"})
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
		answer(w, r, pass)
	}
}

// conflict answers 409, as a webhook may.
var conflict = says(metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "refused with a 409"})

// broken answers 500.
var broken = says(metav1.Status{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "out of order"})

// unavailable answers 503, as a proxy does whose server is not there.
var unavailable = page(http.StatusServiceUnavailable, "text/plain", "no healthy upstream")

// slow passes a request on after a while.
func slow(d time.Duration) happening {
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

// dropped ends the connection without an answer, and passes nothing on.
func dropped(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// unanswered passes a request on, which is carried out, and loses the answer.
func unanswered(_ http.ResponseWriter, r *http.Request, pass http.Handler) {
	pass.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// cutOff passes a request on, and ends the connection within the answer.
func cutOff(w http.ResponseWriter, r *http.Request, pass http.Handler) {
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

// expired answers a watch with 410, when it is opened.
var expired = says(metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})

// expiredWithin opens a watch and says in it that it has expired.
func expiredWithin(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",`+
		`"message":"too old resource version","reason":"Expired","code":410}}`+"\n")
}

// brokenWithin opens a watch, and ends the connection within an event.
func brokenWithin(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"type":"DELETED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","meta`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

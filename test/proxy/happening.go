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

// Happening is what happens to a request in place of being passed on.
type Happening = func(http.ResponseWriter, *http.Request, http.Handler)

// In matches calls about objects in a namespace, by these verbs or by any.
func In(namespace string, verbs ...string) func(Call) bool {
	return func(c Call) bool {
		return c.IsResourceRequest && c.Namespace == namespace && isAmong(c.Verb, verbs)
	}
}

// About matches calls about one object.
func About(namespace, name string, verbs ...string) func(Call) bool {
	return func(c Call) bool { return In(namespace, verbs...)(c) && c.Name == name }
}

// OfGroup matches calls about the resources of a group, and its discovery.
func OfGroup(group string, verbs ...string) func(Call) bool {
	return func(c Call) bool {
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

// Sometimes matches one in so many of the calls that match. What is random
// about it is the same each time.
func Sometimes(oneIn int, matches func(Call) bool) func(Call) bool {
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

// Page answers with a text, as something does that is not an API server.
func Page(code int, contentType, text string) Happening {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// Says answers with a Status.
func Says(status metav1.Status) Happening {
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status = metav1.StatusFailure
	body, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	return Page(int(status.Code), "application/json", string(body))
}

// Busy answers 429, and when to come again.
func Busy(after time.Duration) Happening {
	answer := Says(metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "come again"})
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
		answer(w, r, pass)
	}
}

// Conflict answers 409, as a webhook may.
var Conflict = Says(metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "refused with a 409"})

// Broken answers 500.
var Broken = Says(metav1.Status{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "out of order"})

// Unavailable answers 503, as a proxy does whose server is not there.
var Unavailable = Page(http.StatusServiceUnavailable, "text/plain", "no healthy upstream")

// Slow passes a request on after a while.
func Slow(d time.Duration) Happening {
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

// Dropped ends the connection without an answer, and passes nothing on.
func Dropped(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// Unanswered passes a request on, which is carried out, and loses the answer.
func Unanswered(_ http.ResponseWriter, r *http.Request, pass http.Handler) {
	pass.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// CutOff passes a request on, and ends the connection within the answer.
func CutOff(w http.ResponseWriter, r *http.Request, pass http.Handler) {
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

// Expired answers a watch with 410, when it is opened.
var Expired = Says(metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})

// ExpiredWithin opens a watch and says in it that it has expired.
func ExpiredWithin(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",`+
		`"message":"too old resource version","reason":"Expired","code":410}}`+"\n")
}

// BrokenWithin opens a watch, and ends the connection within an event.
func BrokenWithin(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"type":"DELETED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","meta`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// OfResources matches calls about any objects, by these verbs or by any.
func OfResources(verbs ...string) func(Call) bool {
	return func(c Call) bool { return c.IsResourceRequest && isAmong(c.Verb, verbs) }
}

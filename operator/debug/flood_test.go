package debug

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// countingCluster counts the requests to an API server, and forwards them to the cluster.
type countingCluster struct {
	cluster               *fakeCluster
	tokens, access        atomic.Int64
	inFlight, maxInFlight atomic.Int64 // concurrent requests: current and maximum
	broken                atomic.Bool
	hold                  chan struct{} // if not nil, responses wait until it is closed
}

func (v *countingCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if now := v.inFlight.Add(1); now > v.maxInFlight.Load() {
		v.maxInFlight.Store(now)
	}
	defer v.inFlight.Add(-1)
	count := &v.access
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		count = &v.tokens
	}
	count.Add(1)
	if v.hold != nil {
		<-v.hold
	}
	if v.broken.Load() {
		respond(w, http.StatusForbidden, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
		return
	}
	v.cluster.ServeHTTP(w, r)
}

func (v *countingCluster) guarded(t *testing.T, next http.Handler) http.Handler {
	t.Helper()
	if v.cluster == nil {
		v.cluster = &fakeCluster{users: map[string]string{"good": "alice"}, allows: isPath}
	}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGuard(client)
	if err != nil {
		t.Fatal(err)
	}
	if next == nil {
		s := source(family()...)
		s.ReadAccess = g.ReadAccess(resources)
		next = Handlers(s)["/debug/gc/graph"]
	}
	h, err := g.Filter(logr.Discard(), next)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var noop = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func getFrom(t *testing.T, h http.Handler, address, token string) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/gc/graph", nil)
	r.RemoteAddr = address
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// maxCalls returns the maximum number of calls at a rate since a time, plus one second.
func maxCalls(burst int, rate float64, since time.Time) int64 {
	return int64(burst) + int64(rate*(time.Since(since).Seconds()+1))
}

func TestThrottle_LimitsTokensFromOneAddress(t *testing.T) {
	v := &countingCluster{}
	h, began := v.guarded(t, noop), time.Now()
	rejected := 0
	for i := range 500 {
		if getFrom(t, h, fmt.Sprintf("10.0.0.1:%d", 1000+i), fmt.Sprintf("invented-%d", i)) == http.StatusTooManyRequests {
			rejected++
		}
	}
	if n, limit := v.tokens.Load(), maxCalls(addressBurst, addressRate, began); n > limit || rejected == 0 {
		t.Errorf("%d reviews, want at most %d; %d requests were rejected", n, limit, rejected)
	}
	if code := getFrom(t, h, "10.0.0.2:1000", "good"); code != http.StatusOK {
		t.Errorf("status %d for another address", code)
	}
}

func TestThrottle_LimitsTokensFromManyAddresses(t *testing.T) {
	v := &countingCluster{}
	h, began := v.guarded(t, noop), time.Now()
	for i := range 1000 {
		getFrom(t, h, fmt.Sprintf("10.0.%d.%d:1", i/250, i%250), fmt.Sprintf("invented-%d", i))
	}
	if n, limit := v.tokens.Load(), maxCalls(tokenBurst, tokenRate, began); n > limit {
		t.Errorf("%d reviews, want at most %d", n, limit)
	}
}

func TestThrottle_CountsIPv6NetworksAsOneClient(t *testing.T) {
	v := &countingCluster{}
	h, began := v.guarded(t, noop), time.Now()
	for i := range 200 {
		getFrom(t, h, fmt.Sprintf("[2001:db8::%x]:1", i), fmt.Sprintf("invented-%d", i))
	}
	if n, limit := v.tokens.Load(), maxCalls(addressBurst, addressRate, began); n > limit {
		t.Errorf("%d reviews, want at most %d", n, limit)
	}
}

func TestThrottle_KnownTokensHaveTheirOwnLimit(t *testing.T) {
	v := &countingCluster{cluster: &fakeCluster{users: map[string]string{"good": "alice"}, allows: isPath}}
	var cached *tokenReviews
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	cached = newTokenReviews(reviewer(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		v.tokens.Add(1)
		return &authenticator.Response{User: &user.DefaultInfo{Name: "alice"}}, token == "good", nil
	}))
	request := func(token string) bool {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("Authorization", "Bearer "+token)
		_, ok, _ := cached.AuthenticateRequest(r)
		return ok
	}
	if !request("good") {
		t.Fatal("a valid token is rejected")
	}
	for i := range 500 {
		request(fmt.Sprint("invented-", i))
	}
	cached.valid.RemoveAll(func(any) bool { return true }) // as after validTTL
	if !request("good") {
		t.Error("a known token is not reviewed during a flood")
	}
	for _, keys := range [][]any{cached.valid.Keys(), cached.invalid.Keys(), cached.known.Keys()} {
		for _, key := range keys {
			if text := fmt.Sprint(key); strings.Contains(text, "good") || strings.Contains(text, "invented") {
				t.Errorf("a token is stored in plain text: %q", text)
			}
		}
	}
}

type reviewer func(context.Context, string) (*authenticator.Response, bool, error)

func (r reviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return r(ctx, token)
}

func TestTokens_InvalidTokenIsReviewedOnce(t *testing.T) {
	v := &countingCluster{}
	h := v.guarded(t, noop)
	for range 100 {
		if code := getFrom(t, h, "10.0.0.1:1", "bad"); code != http.StatusUnauthorized {
			t.Fatalf("status %d", code)
		}
	}
	if n := v.tokens.Load(); n != 1 {
		t.Errorf("%d reviews", n)
	}
}

func TestTokens_RequestsWithoutTokenCauseNoReview(t *testing.T) {
	v := &countingCluster{}
	h := v.guarded(t, noop)
	for _, header := range []map[string]string{
		{}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer"}, {"Authorization": "Bearer " + strings.Repeat("a", maxTokenBytes+1)},
		{"Sec-Websocket-Protocol": "base64url.bearer.authorization.k8s.io.Z29vZA, x"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/gc/graph", nil)
		for name, value := range header {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
			t.Errorf("%v: status %d", header, w.Code)
		}
	}
	if n := v.tokens.Load(); n != 0 {
		t.Errorf("%d reviews", n)
	}
}

func TestTokens_ReviewErrorsAreNotCached(t *testing.T) {
	v := &countingCluster{}
	v.broken.Store(true)
	h := v.guarded(t, noop)
	if code := getFrom(t, h, "10.0.0.1:1", "good"); code != http.StatusUnauthorized {
		t.Errorf("status %d", code)
	}
	v.broken.Store(false)
	if code := getFrom(t, h, "10.0.0.1:1", "good"); code != http.StatusOK {
		t.Errorf("status %d for a valid token after the outage", code)
	}
}

func TestThrottle_LimitsConcurrentTokenReviews(t *testing.T) {
	v := &countingCluster{hold: make(chan struct{})}
	h := v.guarded(t, noop)
	codes := make(chan int)
	for i := range 3 * maxConcurrentReviews {
		go func() { codes <- getFrom(t, h, fmt.Sprintf("10.0.0.%d:1", i), fmt.Sprint("invented-", i)) }()
	}
	for range 2 * maxConcurrentReviews { // rejected requests do not wait
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Errorf("status %d", code)
		}
	}
	close(v.hold)
	for range maxConcurrentReviews {
		if code := <-codes; code != http.StatusUnauthorized {
			t.Errorf("status %d", code)
		}
	}
	if n := v.maxInFlight.Load(); n > maxConcurrentReviews {
		t.Errorf("%d concurrent reviews", n)
	}
}

func TestThrottle_LimitsAccessReviewsPerUser(t *testing.T) {
	v := &countingCluster{cluster: &fakeCluster{users: map[string]string{"good": "alice"}, allows: isPath}}
	var sight func(*http.Request) ReadAccess
	ended := make(chan bool, 100)
	h := v.guarded(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if sight == nil {
			return
		}
		canRead := sight(r)
		for i := range 2000 {
			if canRead(record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: fmt.Sprint(i)}) {
				t.Error("a forbidden object is visible")
			}
		}
		ended <- true
	}))
	if code := getFrom(t, h, "10.0.0.1:1", "good"); code != http.StatusOK { // from now on the token is known
		t.Fatalf("status %d", code)
	}
	sight = (&Guard{access: accessReviewsOf(t, v)}).ReadAccess(resources)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	var rejected atomic.Int64
	for range 3 * maxRequestsPerUser {
		all.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/gc/graph", nil)
			r.Header.Set("Authorization", "Bearer good")
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code == http.StatusTooManyRequests {
				rejected.Add(1)
			}
		})
	}
	served := make(chan struct{})
	go func() {
		all.Wait()
		close(served)
	}()
	for waiting := true; waiting && (rejected.Load() < 2*maxRequestsPerUser || v.access.Load() < userBurst+2*userRate); {
		select {
		case <-served:
			waiting = false
		case <-time.After(time.Millisecond):
		}
	}
	cancel() // the rest of the reviews, at their rate, would take half a minute
	<-served
	if n, limit := v.access.Load(), maxCalls(userBurst, userRate, began)+1; n > limit {
		t.Errorf("%d reviews, want at most %d", n, limit)
	}
	if len(ended) != maxRequestsPerUser || rejected.Load() != 2*maxRequestsPerUser {
		t.Errorf("%d requests served, %d rejected", len(ended), rejected.Load())
	}
}

func accessReviewsOf(t *testing.T, v *countingCluster) *accessReviews {
	t.Helper()
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGuard(client)
	if err != nil {
		t.Fatal(err)
	}
	return g.access
}

func TestGuard_RejectsOtherMethods(t *testing.T) {
	v := &countingCluster{cluster: &fakeCluster{users: map[string]string{"good": "alice"}, allows: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }}}
	h := v.guarded(t, noop)
	r := httptest.NewRequestWithContext(t.Context(), "INVENTED", "/debug/gc/graph", nil)
	r.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed || v.tokens.Load() != 0 {
		t.Errorf("status %d after %d reviews", w.Code, v.tokens.Load())
	}
}

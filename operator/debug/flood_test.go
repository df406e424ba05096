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

// reviews counts what an API server is asked, and has it answered by the cluster.
type reviews struct {
	cluster        *cluster
	tokens, access atomic.Int64
	now, most      atomic.Int64 // at the same time
	broken         atomic.Bool
	hold           chan struct{} // if not nil, nothing is answered before it is closed
}

func (v *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if now := v.now.Add(1); now > v.most.Load() {
		v.most.Store(now)
	}
	defer v.now.Add(-1)
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

func (v *reviews) guarded(t *testing.T, next http.Handler) http.Handler {
	t.Helper()
	if v.cluster == nil {
		v.cluster = &cluster{users: map[string]string{"good": "alice"}, allows: isPath}
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
		s.Sight = g.Sight(resources)
		next = Handlers(s)["/debug/gc/graph"]
	}
	h, err := g.Filter(logr.Discard(), next)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func askFrom(t *testing.T, h http.Handler, address, token string) int {
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

// bound is how many there may be of a rate since a time, with room for one second.
func bound(burst int, rate float64, since time.Time) int64 {
	return int64(burst) + int64(rate*(time.Since(since).Seconds()+1))
}

func TestManyTokensFromOneAddressCauseFewReviews(t *testing.T) {
	v := &reviews{}
	h, began := v.guarded(t, nothing), time.Now()
	refused := 0
	for i := range 500 {
		if askFrom(t, h, fmt.Sprintf("10.0.0.1:%d", 1000+i), fmt.Sprintf("invented-%d", i)) == http.StatusTooManyRequests {
			refused++
		}
	}
	if n, most := v.tokens.Load(), bound(addressBurst, addressRate, began); n > most || refused == 0 {
		t.Errorf("%d reviews, want at most %d; %d requests were refused", n, most, refused)
	}
	if code := askFrom(t, h, "10.0.0.2:1000", "good"); code != http.StatusOK {
		t.Errorf("who asks from elsewhere is answered %d", code)
	}
}

func TestManyTokensFromManyAddressesCauseFewReviews(t *testing.T) {
	v := &reviews{}
	h, began := v.guarded(t, nothing), time.Now()
	for i := range 1000 {
		askFrom(t, h, fmt.Sprintf("10.0.%d.%d:1", i/250, i%250), fmt.Sprintf("invented-%d", i))
	}
	if n, most := v.tokens.Load(), bound(tokenBurst, tokenRate, began); n > most {
		t.Errorf("%d reviews, want at most %d", n, most)
	}
}

func TestAddressesOfOneNetworkOfIPv6AreOneClients(t *testing.T) {
	v := &reviews{}
	h, began := v.guarded(t, nothing), time.Now()
	for i := range 200 {
		askFrom(t, h, fmt.Sprintf("[2001:db8::%x]:1", i), fmt.Sprintf("invented-%d", i))
	}
	if n, most := v.tokens.Load(), bound(addressBurst, addressRate, began); n > most {
		t.Errorf("%d reviews, want at most %d", n, most)
	}
}

func TestWhoIsKnownIsNotShutOutByAFlood(t *testing.T) {
	v := &reviews{cluster: &cluster{users: map[string]string{"good": "alice"}, allows: isPath}}
	var who *tokens
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	who = newTokens(reviewer(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		v.tokens.Add(1)
		return &authenticator.Response{User: &user.DefaultInfo{Name: "alice"}}, token == "good", nil
	}))
	request := func(token string) bool {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("Authorization", "Bearer "+token)
		_, ok, _ := who.AuthenticateRequest(r)
		return ok
	}
	if !request("good") {
		t.Fatal("a good token is refused")
	}
	for i := range 500 {
		request(fmt.Sprint("invented-", i))
	}
	who.good.RemoveAll(func(any) bool { return true }) // as after tokenLife
	if !request("good") {
		t.Error("a token that was good is not reviewed again during a flood")
	}
	for _, keys := range [][]any{who.good.Keys(), who.bad.Keys(), who.known.Keys()} {
		for _, key := range keys {
			if text := fmt.Sprint(key); strings.Contains(text, "good") || strings.Contains(text, "invented") {
				t.Errorf("a token is kept as it is: %q", text)
			}
		}
	}
}

type reviewer func(context.Context, string) (*authenticator.Response, bool, error)

func (r reviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return r(ctx, token)
}

func TestABadTokenIsReviewedOnce(t *testing.T) {
	v := &reviews{}
	h := v.guarded(t, nothing)
	for range 100 {
		if code := askFrom(t, h, "10.0.0.1:1", "bad"); code != http.StatusUnauthorized {
			t.Fatalf("answered %d", code)
		}
	}
	if n := v.tokens.Load(); n != 1 {
		t.Errorf("%d reviews", n)
	}
}

func TestWithoutABearerTokenNobodyIsAsked(t *testing.T) {
	v := &reviews{}
	h := v.guarded(t, nothing)
	for _, header := range []map[string]string{
		{}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer"}, {"Authorization": "Bearer " + strings.Repeat("a", mostToken+1)},
		{"Sec-Websocket-Protocol": "base64url.bearer.authorization.k8s.io.Z29vZA, x"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/gc/graph", nil)
		for name, value := range header {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
			t.Errorf("%v is answered %d", header, w.Code)
		}
	}
	if n := v.tokens.Load(); n != 0 {
		t.Errorf("%d reviews", n)
	}
}

func TestAnOutageIsNotHeldAgainstAToken(t *testing.T) {
	v := &reviews{}
	v.broken.Store(true)
	h := v.guarded(t, nothing)
	if code := askFrom(t, h, "10.0.0.1:1", "good"); code != http.StatusUnauthorized {
		t.Errorf("answered %d", code)
	}
	v.broken.Store(false)
	if code := askFrom(t, h, "10.0.0.1:1", "good"); code != http.StatusOK {
		t.Errorf("once the API server answers, a good token is answered %d", code)
	}
}

func TestFewTokensAreReviewedAtTheSameTime(t *testing.T) {
	v := &reviews{hold: make(chan struct{})}
	h := v.guarded(t, nothing)
	codes := make(chan int)
	for i := range 3 * atOnce {
		go func() { codes <- askFrom(t, h, fmt.Sprintf("10.0.0.%d:1", i), fmt.Sprint("invented-", i)) }()
	}
	for range 2 * atOnce { // those that are not let in don't wait
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Errorf("answered %d", code)
		}
	}
	close(v.hold)
	for range atOnce {
		if code := <-codes; code != http.StatusUnauthorized {
			t.Errorf("answered %d", code)
		}
	}
	if n := v.most.Load(); n > atOnce {
		t.Errorf("%d at the same time", n)
	}
}

func TestOneUserCausesABoundedNumberOfAccessReviews(t *testing.T) {
	v := &reviews{cluster: &cluster{users: map[string]string{"good": "alice"}, allows: isPath}}
	var sight func(*http.Request) Sight
	ended := make(chan bool, 100)
	h := v.guarded(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sees := sight(r)
		for i := range 2000 {
			if sees(record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: fmt.Sprint(i)}) {
				t.Error("what may not be seen is shown")
			}
		}
		ended <- true
	}))
	sight = (&Guard{access: accessOf(t, v)}).Sight(resources)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	var refused atomic.Int64
	for range 3 * requestsPerUser {
		all.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/gc/graph", nil)
			r.Header.Set("Authorization", "Bearer good")
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code == http.StatusTooManyRequests {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if n, most := v.access.Load(), bound(userBurst, userRate, began)+1; n > most {
		t.Errorf("%d reviews, want at most %d", n, most)
	}
	if len(ended) == 0 || refused.Load() == 0 {
		t.Errorf("%d requests were answered, %d refused", len(ended), refused.Load())
	}
}

func accessOf(t *testing.T, v *reviews) *access {
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

func TestOtherMethodsAreNotReviewed(t *testing.T) {
	v := &reviews{cluster: &cluster{users: map[string]string{"good": "alice"}, allows: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }}}
	h := v.guarded(t, nothing)
	r := httptest.NewRequestWithContext(t.Context(), "INVENTED", "/debug/gc/graph", nil)
	r.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed || v.tokens.Load() != 0 {
		t.Errorf("answered %d after %d reviews", w.Code, v.tokens.Load())
	}
}

package examples

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/s3server"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

// storage is a real S3 server with a bucket named photos.
type storage struct {
	*testing.T
	*s3server.Server
}

func newStorage(t *testing.T) storage {
	t.Helper()
	server, err := s3server.Start(t.Context(), t.TempDir(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	s := storage{t, server}
	s.send("PUT", "/photos", "", 200)
	return s
}

func (s storage) send(method, path, body string, want int) {
	s.Helper()
	response, err := s.Request(s.Context(), method, path, body)
	if err != nil {
		s.Fatal(err)
	}
	if response.Status != want {
		s.Fatalf("%s %s: %d, want %d: %s", method, path, response.Status, want, response.Body)
	}
}

// put puts objects into the bucket.
func (s storage) put(keys ...string) {
	s.Helper()
	for _, key := range keys {
		s.send("PUT", "/photos/"+strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(key)), "text", 200)
	}
}

func (s storage) keepVersions() {
	s.Helper()
	s.send("PUT", "/photos?versioning=", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", 200)
}

// attempt is the result of a module's attempt to delete the bucket.
type attempt struct {
	verdict  hostabi.Verdict
	requests int
	fuel     int64 // maximum of all rounds
}

// runModule evaluates the module and sends its requests until it returns another decision. After busyAfter
// requests, the storage returns 503; -1: never.
func (s storage) runModule(policy *wasm.Policy, busyAfter int) attempt {
	s.Helper()
	r := s.newRequest()
	var a attempt
	for r.Round = 1; r.Round <= 16; r.Round++ {
		answer, err := policy.EvaluateMetered(s.Context(), r)
		if err != nil {
			s.Fatal(err)
		}
		a.verdict, a.fuel = answer.Verdict, max(a.fuel, answer.Fuel)
		if a.verdict.Decision != hostabi.DecisionAct {
			return a
		}
		for _, intent := range a.verdict.Intents {
			if a.requests == busyAfter {
				r.Results[intent.ID] = hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 503, Body: "slow down"}}
				continue
			}
			a.requests++
			response, err := s.Send(s.Context(), intent.HTTP.Method, intent.HTTP.URL, intent.HTTP.Headers, intent.HTTP.Body)
			if err != nil {
				s.Fatal(err)
			}
			r.Results[intent.ID] = hostabi.Result{HTTP: &hostabi.HTTPResult{Status: response.Status, Body: response.Body}}
		}
	}
	s.Fatal("module still acts in the last round")
	return a
}

// newRequest returns a request as after a restart: without state and results.
func (s storage) newRequest() hostabi.Request {
	s.Helper()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	r := hostabi.Request{
		APIVersion: hostabi.Version, Hook: hostabi.HookFinalize, Time: now, Attempt: 1, IdempotencyKey: "key",
		Policy:  hostabi.Policy{Name: "bucket", Settings: json.RawMessage(fmt.Sprintf(`{"endpoint":%q}`, s.URL))},
		Results: map[string]hostabi.Result{},
	}
	body := `{"apiVersion":"example.com/v1","kind":"Bucket","metadata":{"name":"photos","namespace":"shop","uid":"u","resourceVersion":"7",
		"deletionTimestamp":"2026-01-02T12:00:00Z"},"spec":{"bucket":"photos","deletionPolicy":"Delete"}}`
	if err := json.Unmarshal([]byte(body), &r.Object); err != nil {
		s.Fatal(err)
	}
	return r
}

// expectNoBucket checks that the bucket does not exist.
func (s storage) expectNoBucket() {
	s.Helper()
	s.send("GET", "/photos?list-type=2", "", 404)
}

func TestBucket_WithAnyObjectNames_IsDeleted(t *testing.T) {
	s := newStorage(t)
	s.put("a", "a b", "dir/file", "a&b", "<Key>x</Key>", `"quoted'`, "grün", "a+b", "a%2Fb", "a;b=c")
	if a := s.runModule(compilePolicy(t, "bucket-finalizer"), -1); a.verdict.Decision != hostabi.DecisionDone || a.requests != 4 {
		t.Errorf("got %+v", a)
	}
	s.expectNoBucket()
	if a := s.runModule(compilePolicy(t, "bucket-finalizer"), -1); a.verdict.Reason != "the bucket does not exist" || a.requests != 1 {
		t.Errorf("evaluated again: %+v", a)
	}
}

func TestBucket_VersionsAndDeleteMarkers_AreDeleted(t *testing.T) {
	s := newStorage(t)
	s.keepVersions()
	s.put("a", "a", "a", "b")
	s.send("DELETE", "/photos/b", "", 204)
	if a := s.runModule(compilePolicy(t, "bucket-finalizer"), -1); a.verdict.Decision != hostabi.DecisionDone {
		t.Errorf("got %+v", a)
	}
	s.expectNoBucket()
}

func TestBucket_LargeOne_TakesSeveralAttempts(t *testing.T) {
	s := newStorage(t)
	var keys []string
	for i := range 450 {
		keys = append(keys, fmt.Sprintf("dir/%03d-%s", i, strings.Repeat("x", 100)))
	}
	s.put(keys...)
	policy := compilePolicy(t, "bucket-finalizer")
	attempts := []attempt{s.runModule(policy, -1)}
	for attempts[len(attempts)-1].verdict.Decision == hostabi.DecisionWait && len(attempts) < 5 {
		attempts = append(attempts, s.runModule(policy, -1))
	}
	if last := attempts[len(attempts)-1]; last.verdict.Decision != hostabi.DecisionDone || len(attempts) < 2 {
		t.Errorf("got %+v", attempts)
	}
	t.Logf("%+v", attempts)
	s.expectNoBucket()
}

func TestBucket_WithABusyStorage_IsRetried(t *testing.T) {
	s := newStorage(t)
	policy := compilePolicy(t, "bucket-finalizer")
	for after := range 4 { // list, delete, list, delete the bucket
		s.send("PUT", "/photos/a", "text", 200)
		if a := s.runModule(policy, after); a.verdict.Decision != hostabi.DecisionWait || !strings.Contains(a.verdict.Reason, "503") {
			t.Errorf("busy after %d requests: %+v", after, a)
		}
	}
	if a := s.runModule(policy, -1); a.verdict.Decision != hostabi.DecisionDone {
		t.Errorf("got %+v", a)
	}
	s.expectNoBucket()
}

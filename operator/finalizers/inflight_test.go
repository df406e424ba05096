package finalizers

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// requestThenWait makes the module request an intent first, and then always wait.
func requestThenWait(w *testEnv) {
	w.module.respond = func(r hostabi.Request) (hostabi.Verdict, error) {
		if r.Round == 1 {
			return hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: []hostabi.Intent{{
				ID: "bucket", HTTP: &hostabi.HTTPIntent{Method: "DELETE", URL: "https://s3.example.com/b?key=secret"},
			}}}, nil
		}
		return hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(10 * time.Second), Reason: "the server is away"}, nil
	}
}

func (w *testEnv) stuck() []Stuck { return w.controller.progress().Stuck }

func TestWait_AfterAFailedIntentIsStuckUntilOneSucceeds(t *testing.T) {
	for claim, c := range map[string]struct {
		result      hostabi.Result
		wantMessage string // "": not blocking
	}{
		"connection refused":     {hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorUnavailable, Message: "connection refused"}}, "Unavailable (connection refused)"},
		"the server fails":       {hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 503}}, "Service Unavailable (503)"},
		"the credentials expire": {hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 401}}, "Unauthorized (401)"},
		"forbidden":              {hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorForbidden, Message: "no rights"}}, "Forbidden (no rights)"},
		"gone already":           {hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 404}}, ""},
		"not empty yet":          {hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 409}}, ""},
		"object not found":       {hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorNotFound}}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newTestEnv(t)
			requestThenWait(w)
			w.execute = func(hostabi.Intent) hostabi.Result { return c.result }
			o := w.createPending()
			w.reconcile(o)
			if c.wantMessage == "" {
				w.wantOutcome(Waiting, "the server is away")
				if got := w.stuck(); len(got) != 0 {
					t.Fatalf("reported as stuck: %+v", got)
				}
				return
			}
			w.wantOutcome(Blocked, "the server is away: DELETE https://s3.example.com/b: "+c.wantMessage)
			got := w.stuck()
			if len(got) != 1 || got[0].Reason != "Blocked" || got[0].Attempts != 1 || !got[0].Since.Equal(start) || got[0].NextRetry.IsZero() {
				t.Fatalf("%+v", got)
			}
			w.advance(2 * time.Minute)
			w.reconcile(o)
			if got = w.stuck(); len(got) != 1 || got[0].Attempts != 2 || !got[0].Since.Equal(start) {
				t.Fatalf("since has changed: %+v", got)
			}
			w.execute = func(hostabi.Intent) hostabi.Result { return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 200}} }
			w.advance(time.Minute)
			w.reconcile(o)
			if got = w.stuck(); len(got) != 0 {
				t.Fatalf("the server is back: %+v", got)
			}
		})
	}
}

func TestBlockedObject_ReportsExceededDeadline(t *testing.T) {
	w := newTestEnv(t, func(f *policies.Finalizer) { f.Deadline = time.Minute })
	requestThenWait(w)
	w.execute = func(hostabi.Intent) hostabi.Result { return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 503}} }
	o := w.createPending()
	w.reconcile(o)
	w.wantOutcome(Blocked, "Service Unavailable (503)")
	w.advance(time.Minute)
	w.reconcile(o)
	w.wantOutcome(DeadlineExceeded, "Service Unavailable (503)")
}

// A server may hang for half a minute, and until then nothing is decided.
func TestIntentInFlight_IsReportedWithoutResponse(t *testing.T) {
	w := newTestEnv(t)
	requestThenWait(w)
	var before, during []Stuck
	w.execute = func(hostabi.Intent) hostabi.Result {
		before = w.stuck()
		w.advance(slowIntentAfter)
		during = w.stuck()
		return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 200}}
	}
	o := w.createPending()
	w.reconcile(o)
	if len(before) != 0 {
		t.Errorf("reported as stuck immediately: %+v", before)
	}
	if len(during) != 1 {
		t.Fatalf("not reported: %+v", during)
	}
	want := Stuck{Object: during[0].Object, Reason: "NoResponse", Since: start, Message: "DELETE https://s3.example.com/b: no response since 2026-01-01T00:00:00Z"}
	if diff := cmp.Diff(want, during[0]); diff != "" || during[0].Object.Name != "o" {
		t.Errorf("%s of %q", diff, during[0].Object.Name)
	}
	if after := w.stuck(); len(after) != 0 {
		t.Errorf("still reported after the response: %+v", after)
	}
}

func TestIntentInFlight_ReportsThePreviousReason(t *testing.T) {
	w := newTestEnv(t)
	requestThenWait(w)
	w.execute = func(hostabi.Intent) hostabi.Result { return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 503}} }
	o := w.createPending()
	w.reconcile(o)
	w.advance(time.Minute)
	var during []Stuck
	w.execute = func(hostabi.Intent) hostabi.Result {
		w.advance(slowIntentAfter)
		during = w.stuck()
		return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 503}}
	}
	w.reconcile(o)
	if len(during) != 1 || !during[0].Since.Equal(start) || !during[0].NextRetry.IsZero() || !strings.Contains(during[0].Message, "Service Unavailable (503)") {
		t.Errorf("%+v", during)
	}
}

func TestProgress_ReportsTheOldestObject(t *testing.T) {
	w := newTestEnv(t)
	w.module.returns(waitVerdict)
	if p := w.controller.progress(); !p.Oldest.IsZero() {
		t.Errorf("nothing waits: %s", p.Oldest)
	}
	o := w.createPending()
	w.advance(time.Hour)
	w.reconcile(o)
	if p := w.controller.progress(); !p.Oldest.Equal(start) {
		t.Errorf("it was deleted at %s: %s", start, p.Oldest)
	}
}

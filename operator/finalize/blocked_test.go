package finalize

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// getsThenWaits has the module ask for something first, and wait whatever came of it.
func getsThenWaits(w *world) {
	w.module.say = func(r hostabi.Request) (hostabi.Verdict, error) {
		if r.Round == 1 {
			return hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: []hostabi.Intent{{
				ID: "bucket", HTTP: &hostabi.HTTPIntent{Method: "DELETE", URL: "https://s3.example.com/b?key=secret"},
			}}}, nil
		}
		return hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(10 * time.Second), Reason: "the server is away"}, nil
	}
}

func (w *world) stuckNow() []Stuck { return w.server.progress().Stuck }

func TestAWaitAfterAFailedIntent_IsStuckUntilOneSucceeds(t *testing.T) {
	for claim, c := range map[string]struct {
		result hostabi.Result
		says   string // "": it is no obstacle
	}{
		"nobody answers":         {hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorUnavailable, Message: "connection refused"}}, "Unavailable (connection refused)"},
		"the server fails":       {hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 503}}, "Service Unavailable (503)"},
		"the credentials expire": {hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 401}}, "Unauthorized (401)"},
		"it may not":             {hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorForbidden, Message: "no rights"}}, "Forbidden (no rights)"},
		"it is gone":             {hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 404}}, ""},
		"it is not empty yet":    {hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 409}}, ""},
		"there is no object":     {hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorNotFound}}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			getsThenWaits(w)
			w.does = func(hostabi.Intent) hostabi.Result { return c.result }
			o := w.waiting()
			w.visit(o)
			if c.says == "" {
				w.is(Waits, "the server is away")
				if got := w.stuckNow(); len(got) != 0 {
					t.Fatalf("it counts as stuck: %+v", got)
				}
				return
			}
			w.is(Blocked, "the server is away: DELETE https://s3.example.com/b: "+c.says)
			got := w.stuckNow()
			if len(got) != 1 || got[0].Reason != "Blocked" || !got[0].Since.Equal(start) || got[0].Retry.IsZero() {
				t.Fatalf("%+v", got)
			}
			w.pass(2 * time.Minute)
			w.visit(o)
			if got = w.stuckNow(); len(got) != 1 || !got[0].Since.Equal(start) {
				t.Fatalf("since when is lost: %+v", got)
			}
			w.does = func(hostabi.Intent) hostabi.Result { return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 200}} }
			w.pass(time.Minute)
			w.visit(o)
			if got = w.stuckNow(); len(got) != 0 {
				t.Fatalf("the server is back: %+v", got)
			}
		})
	}
}

func TestABlockedObject_TellsItsDeadlineOnceThatIsOver(t *testing.T) {
	w := newWorld(t, func(f *policies.Finalizer) { f.Longest = time.Minute })
	getsThenWaits(w)
	w.does = func(hostabi.Intent) hostabi.Result { return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 503}} }
	o := w.waiting()
	w.visit(o)
	w.is(Blocked, "Service Unavailable (503)")
	w.pass(time.Minute)
	w.visit(o)
	w.is(Overdue, "Service Unavailable (503)")
}

// A server that hangs does so for half a minute at a time, and until then nothing is decided.
func TestAnIntentInFlight_IsReportedWhileItIsNotAnswered(t *testing.T) {
	w := newWorld(t)
	getsThenWaits(w)
	var before, during []Stuck
	w.does = func(hostabi.Intent) hostabi.Result {
		before = w.stuckNow()
		w.pass(answerIn)
		during = w.stuckNow()
		return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 200}}
	}
	o := w.waiting()
	w.visit(o)
	if len(before) != 0 {
		t.Errorf("it is stuck as soon as it is asked for: %+v", before)
	}
	if len(during) != 1 {
		t.Fatalf("it is not reported: %+v", during)
	}
	want := Stuck{Object: during[0].Object, Reason: "NoAnswer", Since: start, Message: "DELETE https://s3.example.com/b: no answer since 2026-01-01T00:00:00Z"}
	if diff := cmp.Diff(want, during[0]); diff != "" || during[0].Object.Name != "o" {
		t.Errorf("%s of %q", diff, during[0].Object.Name)
	}
	if after := w.stuckNow(); len(after) != 0 {
		t.Errorf("it was answered: %+v", after)
	}
}

func TestAnIntentInFlight_SaysWhatWasWrongBefore(t *testing.T) {
	w := newWorld(t)
	getsThenWaits(w)
	w.does = func(hostabi.Intent) hostabi.Result { return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 503}} }
	o := w.waiting()
	w.visit(o)
	w.pass(time.Minute)
	var during []Stuck
	w.does = func(hostabi.Intent) hostabi.Result {
		w.pass(answerIn)
		during = w.stuckNow()
		return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: 503}}
	}
	w.visit(o)
	if len(during) != 1 || !during[0].Since.Equal(start) || !during[0].Retry.IsZero() || !strings.Contains(during[0].Message, "Service Unavailable (503)") {
		t.Errorf("%+v", during)
	}
}

func TestProgress_SaysSinceWhenTheOldestObjectWaits(t *testing.T) {
	w := newWorld(t)
	w.module.says(waits)
	if p := w.server.progress(); !p.Oldest.IsZero() {
		t.Errorf("nothing waits: %s", p.Oldest)
	}
	o := w.waiting()
	w.pass(time.Hour)
	w.visit(o)
	if p := w.server.progress(); !p.Oldest.Equal(start) {
		t.Errorf("it was deleted at %s: %s", start, p.Oldest)
	}
}

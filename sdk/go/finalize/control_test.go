package finalize_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/finalize"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

func TestOnce_RunsOnce(t *testing.T) {
	type memory struct{ Operation string }
	var looked string
	steps := func(s *finalize.Steps) {
		s.Once("start", func() {
			if response, found := s.Call("post", gleaner.HTTPIntent{Method: "POST", URL: "https://example.com/a"}); found {
				s.SaveState(memory{response.Body})
			}
		})
		var m memory
		s.LoadState(&m)
		s.Call("look", gleaner.HTTPIntent{Method: "GET", URL: "https://example.com/a/" + m.Operation})
		s.Wait(0, "forever")
	}
	r := request()
	for number, want := range []string{"post look", "look", "look"} {
		got := attempt(t, steps, r, func(i gleaner.Intent) gleaner.Result {
			if i.HTTP.Method == "GET" {
				looked = i.HTTP.URL
			}
			return gleanertest.RespondWith(200, "operation-1")(i)
		})
		if ids(got.Intents) != want || looked != "https://example.com/a/operation-1" {
			t.Errorf("attempt %d asks for %s, and looked at %s", number+1, ids(got.Intents), looked)
		}
		r = got.Next
	}
}

func TestOnce_RepeatsUnfinished(t *testing.T) {
	steps := func(s *finalize.Steps) { s.Once("start", func() { allFields["http"](s) }) }
	got := attempt(t, steps, request(), gleanertest.RespondWith(503, ""))
	if got = attempt(t, steps, got.Next, gleanertest.RespondWith(200, "")); len(got.Intents) != 1 || got.Verdict.Decision != gleaner.Done {
		t.Errorf("got %+v", got)
	}
}

func TestState_IsOmittedIfUnchanged(t *testing.T) {
	steps := func(s *finalize.Steps) { s.SaveState(1); s.Wait(0, "") }
	got := attempt(t, steps, request(), nil)
	if string(got.Verdict.State) != `{"own":1}` {
		t.Errorf("at first: %s", got.Verdict.State)
	}
	if got = attempt(t, steps, got.Next, nil); got.Verdict.State != nil {
		t.Errorf("then: %s", got.Verdict.State)
	}
}

func TestAll_RequestsEverythingFirst(t *testing.T) {
	wait := func(s *finalize.Steps, d time.Duration) func() { return func() { s.Wait(d, d.String()) } }
	for claim, c := range map[string]struct {
		steps func(*finalize.Steps)
		want  gleaner.Decision
		after time.Duration
		asked string
	}{
		"a failure": {func(s *finalize.Steps) {
			s.All(func() { s.Fail("no") }, wait(s, time.Hour), func() { s.Get("a", settings); s.Get("b", settings) })
		}, gleaner.Fail, 0, "a b"},
		"the shortest wait": {func(s *finalize.Steps) {
			s.All(wait(s, time.Hour), wait(s, time.Minute), wait(s, 2*time.Minute), func() { s.Get("a", settings) })
		}, gleaner.Wait, time.Minute, "a"},
		"one that is done": {func(s *finalize.Steps) {
			s.All(func() { s.Done("yes") }, func() { s.Get("a", settings) })
			s.Fail("no")
		}, gleaner.Done, 0, "a"},
		"none": {func(s *finalize.Steps) {
			s.All()
			s.All(func() {}, func() { s.Get("a", settings) })
			s.Get("b", settings)
		}, gleaner.Done, 0, "a b"},
		"within another": {func(s *finalize.Steps) {
			s.All(func() { s.All(func() { s.Get("a", settings) }, func() { s.Get("b", settings) }) }, func() { s.Get("c", settings) })
		}, gleaner.Done, 0, "a b c"},
	} {
		got := attempt(t, c.steps, request(), errorResults(gleaner.ErrorNotFound))
		if got.Verdict.Decision != c.want || c.after != 0 && got.Verdict.WaitFor() != c.after || ids(got.Intents) != c.asked {
			t.Errorf("%s: %+v after %s", claim, got.Verdict, ids(got.Intents))
		}
	}
}

func TestAll_SplitsManyIntents(t *testing.T) {
	got := attempt(t, func(s *finalize.Steps) {
		var branches []func()
		for i := range 200 {
			branches = append(branches, func() { s.Get(fmt.Sprint(i), settings) })
		}
		s.All(branches...)
	}, request(), errorResults(gleaner.ErrorNotFound))
	if len(got.Intents) != 200 || got.Rounds != 5 {
		t.Errorf("%d intents in %d rounds", len(got.Intents), got.Rounds)
	}
}

func TestRun_ContinuesInNextAttempt(t *testing.T) {
	steps := func(s *finalize.Steps) {
		for i := range 40 {
			s.Once(fmt.Sprint(i), func() { s.Get(fmt.Sprint(i), settings) })
		}
	}
	r, all := request(), 0
	for range 3 {
		got := attempt(t, steps, r, errorResults(gleaner.ErrorNotFound))
		all += len(got.Intents)
		if r = got.Next; got.Verdict.Decision == gleaner.Done {
			break
		}
		if got.Verdict.WaitFor() != time.Second {
			t.Errorf("it waits for %s", got.Verdict.WaitFor())
		}
	}
	if all != 40 {
		t.Errorf("%d steps were taken", all)
	}
}

func TestEvent_StartsNoRound(t *testing.T) {
	steps := func(s *finalize.Steps) {
		s.Warn("tell", "Slow", strings.Repeat("ö", 1000))
		allFields["http"](s)
		s.Warn("bye", "Bye", "bye")
		s.Wait(time.Hour, "later")
	}
	got := attempt(t, steps, request(), func(i gleaner.Intent) gleaner.Result {
		if i.Event != nil {
			return gleanertest.ErrorResult(gleaner.ErrorUnavailable, "nobody listens")
		}
		return gleanertest.RespondWith(200, "")(i)
	})
	if got.Verdict.Decision != gleaner.Wait || got.Verdict.WaitFor() != time.Hour || ids(got.Intents) != "tell a bye" || got.Rounds != 3 {
		t.Errorf("%+v after %s", got.Verdict, ids(got.Intents))
	}
	r := request()
	r.Round = 16
	if got = attempt(t, allFields["get"], r, nil); got.Verdict.Decision != gleaner.Wait {
		t.Errorf("in the last round: %+v", got.Verdict)
	}
	if got = attempt(t, func(s *finalize.Steps) { s.Warn("tell", "Bye", "bye") }, r, nil); got.Verdict.Decision != gleaner.Done {
		t.Errorf("in the last round, with an event: %+v", got.Verdict)
	}
}

func TestWaitsAreInTheRangeOfAVerdict(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, -1: 30 * time.Second, 1: time.Second, time.Minute: time.Minute, 9000 * time.Hour: 720 * time.Hour,
	} {
		got := attempt(t, func(s *finalize.Steps) { s.Wait(asked, strings.Repeat("long ", 1000)) }, request(), nil)
		if got.Verdict.WaitFor() != want {
			t.Errorf("%s became %s", asked, got.Verdict.WaitFor())
		}
	}
}

func TestGiveUpBy(t *testing.T) {
	steps := func(s *finalize.Steps) {
		s.GiveUpBy(s.Deadline(time.Minute), func() { s.Fail("late for the deadline") })
		s.GiveUpBy(s.AfterDeletion(time.Hour), func() { allFields["get"](s) })
		s.Wait(24*time.Hour, "waits")
	}
	for claim, c := range map[string]struct {
		deadline, since time.Duration // from now; since deletion
		want            gleaner.Decision
		after           time.Duration
	}{
		"early":              {10 * time.Minute, 0, gleaner.Wait, 9 * time.Minute},
		"early for either":   {10 * time.Minute, 55 * time.Minute, gleaner.Wait, 5 * time.Minute},
		"the deadline is by": {-time.Minute, 0, gleaner.Fail, 0},
		"the hour is by":     {10 * time.Minute, 2 * time.Hour, gleaner.Done, 0},
		"no deadline":        {0, 0, gleaner.Wait, time.Hour},
	} {
		r := request()
		if c.deadline != 0 {
			r = gleanertest.WithDeadline(r, c.deadline)
		}
		deleted := r.Time.Add(-c.since)
		r.Object.Metadata.DeletionTimestamp = &deleted
		got := attempt(t, steps, r, errorResults(gleaner.ErrorNotFound))
		if got.Verdict.Decision != c.want || c.after != 0 && got.Verdict.WaitFor() != c.after {
			t.Errorf("%s: %+v", claim, got.Verdict)
		}
	}
}

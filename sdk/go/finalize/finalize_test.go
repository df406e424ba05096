package finalize_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/finalize"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

var settings = gleaner.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "settings"}

func object(name string) gleaner.Object {
	return gleanertest.Object("v1", "ConfigMap", "shop", name)
}

// runSteps is a finalizer of these steps.
func runSteps(f func(*finalize.Steps)) gleaner.Handler {
	return func(r gleaner.Request) (gleaner.Verdict, error) { return finalize.Run(r, f) }
}

// attempt goes through an attempt, which has to be one that Gleaner takes.
func attempt(t *testing.T, f func(*finalize.Steps), r gleaner.Request, world func(gleaner.Intent) gleaner.Result) gleanertest.FinalizeResult {
	t.Helper()
	got, err := gleanertest.Finalize(runSteps(f), r, world)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func request() gleaner.Request { return gleanertest.Request(gleaner.Finalize) }

// errorResults is a world in which nothing is carried out, for one reason.
func errorResults(reason gleaner.ErrorReason) func(gleaner.Intent) gleaner.Result {
	return func(gleaner.Intent) gleaner.Result { return gleanertest.ErrorResult(reason, "oh") }
}

func ids(intents []gleaner.Intent) string {
	var all []string
	for _, i := range intents {
		all = append(all, i.ID)
	}
	return strings.Join(all, " ")
}

func TestRun_RequestsStepsInOrder(t *testing.T) {
	var world gleanertest.FakeCluster
	world.Add(object("settings"))
	got := attempt(t, func(s *finalize.Steps) {
		if o, found := s.Get("read", settings); found {
			s.Delete("delete", o)
		}
		s.Create("copy", object("copy"))
	}, request(), world.Execute)
	if got.Verdict.Decision != gleaner.Done || ids(got.Intents) != "read delete copy" || got.Rounds != 4 {
		t.Errorf("got %+v", got)
	}
	if left := world.Objects(); len(left) != 1 || left[0].Metadata.Name != "copy" {
		t.Errorf("left are %v", left)
	}
}

func TestRun_NoStepsIsDone(t *testing.T) {
	got := attempt(t, func(*finalize.Steps) {}, request(), nil)
	if got.Verdict.Decision != gleaner.Done || got.Rounds != 1 {
		t.Errorf("got %+v", got)
	}
}

// allFields is one step of each sort, by its name.
var allFields = map[string]func(*finalize.Steps){
	"get":    func(s *finalize.Steps) { s.Get("a", settings) },
	"list":   func(s *finalize.Steps) { s.List("a", gleaner.ListIntent{APIVersion: "v1", Kind: "ConfigMap"}) },
	"create": func(s *finalize.Steps) { s.Create("a", object("copy")) },
	"delete": func(s *finalize.Steps) { s.Delete("a", object("settings")) },
	"patch": func(s *finalize.Steps) {
		s.Patch("a", gleaner.PatchIntent{Target: settings, Type: gleaner.PatchMerge, Patch: []byte(`{}`)})
	},
	"http": func(s *finalize.Steps) {
		s.Call("a", gleaner.HTTPIntent{Method: "PUT", URL: "https://example.com/a?token=secret"})
	},
	"each": func(s *finalize.Steps) {
		s.Each("a", gleaner.ListIntent{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop"}, func(gleaner.Object) {})
	},
	"gone": func(s *finalize.Steps) { s.WaitGone("a", object("settings"), time.Second) },
}

func TestSteps_TemporaryErrorBacksOff(t *testing.T) {
	for name, step := range allFields {
		for _, reason := range []gleaner.ErrorReason{gleaner.ErrorUnavailable, gleaner.ErrorConflict, gleaner.ErrorExpired, "Unheard"} {
			for number, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 5 * time.Minute, math.MaxInt: 5 * time.Minute} {
				if name == "each" && reason == gleaner.ErrorExpired {
					want = time.Second // it begins anew
				}
				r := request()
				r.Attempt = number
				got := attempt(t, step, r, errorResults(reason))
				if got.Verdict.Decision != gleaner.Wait || got.Verdict.WaitFor() != want || got.Verdict.Reason == "" {
					t.Errorf("%s, %s, attempt %d: %+v", name, reason, number, got.Verdict)
				}
			}
		}
	}
}

func TestSteps_PermanentErrorFailsWithAdvice(t *testing.T) {
	for name, c := range map[string]struct {
		reason gleaner.ErrorReason
		says   string
	}{
		"get":    {gleaner.ErrorNotGranted, `read: [{apiGroups: [""], resources: [the plural of ConfigMap], namespaces: [shop]}]`},
		"list":   {gleaner.ErrorForbidden, "allow it to list this resource"},
		"create": {gleaner.ErrorNotGranted, `write: [{apiGroups: [""], resources: [the plural of ConfigMap], verbs: [create], namespaces: [shop]}]`},
		"delete": {gleaner.ErrorForbidden, "delete ConfigMap shop/settings: Forbidden: oh"},
		"patch":  {gleaner.ErrorInvalid, "patch ConfigMap shop/settings: Invalid: oh"},
		"http":   {gleaner.ErrorNotGranted, `http: [{url: "https://example.com/a", methods: [PUT]}]`},
		"each":   {gleaner.ErrorNotGranted, `read: [{apiGroups: ["apps"], resources: [the plural of Deployment], namespaces: [shop]}]`},
		"gone":   {gleaner.ErrorForbidden, "get ConfigMap shop/settings"},
	} {
		got := attempt(t, allFields[name], request(), errorResults(c.reason))
		if got.Verdict.Decision != gleaner.Fail || !strings.Contains(got.Verdict.Reason, c.says) {
			t.Errorf("%s: %+v\nwant a reason with %q", name, got.Verdict, c.says)
		}
		if strings.Contains(got.Verdict.Reason, "secret") {
			t.Errorf("%s shows a URL's query: %s", name, got.Verdict.Reason)
		}
	}
}

func TestFail_ExplainsDeletedDependencies(t *testing.T) {
	r := request()
	r.ServiceAccountMissing = true
	got := attempt(t, allFields["get"], r, errorResults(gleaner.ErrorForbidden))
	if got.Verdict.Decision != gleaner.Fail || !strings.Contains(got.Verdict.Reason, "service account of the finalizer does not exist") {
		t.Errorf("without a service account: %+v", got.Verdict)
	}
	r = request()
	r.NamespaceTerminating = true
	got = attempt(t, allFields["create"], r, errorResults(gleaner.ErrorForbidden))
	if got.Verdict.Decision != gleaner.Fail || !strings.Contains(got.Verdict.Reason, "nothing can be created in it") {
		t.Errorf("create in a namespace that goes: %+v", got.Verdict)
	}
	got = attempt(t, allFields["get"], r, errorResults(gleaner.ErrorForbidden))
	if got.Verdict.Decision != gleaner.Fail || !strings.Contains(got.Verdict.Reason, "permissions may already be deleted") {
		t.Errorf("get in a namespace that goes: %+v", got.Verdict)
	}
}

func TestSteps_NotFoundIsAResult(t *testing.T) {
	for _, name := range []string{"get", "delete", "patch", "gone"} {
		got := attempt(t, allFields[name], request(), errorResults(gleaner.ErrorNotFound))
		if got.Verdict.Decision != gleaner.Done {
			t.Errorf("%s: %+v", name, got.Verdict)
		}
	}
	for _, name := range []string{"list", "create", "each"} { // it shows nothing about what is in the list
		got := attempt(t, allFields[name], request(), errorResults(gleaner.ErrorNotFound))
		if got.Verdict.Decision != gleaner.Wait {
			t.Errorf("%s: %+v", name, got.Verdict)
		}
	}
	if got := attempt(t, allFields["create"], request(), errorResults(gleaner.ErrorAlreadyExists)); got.Verdict.Decision != gleaner.Done {
		t.Errorf("create of what is there: %+v", got.Verdict)
	}
}

func TestDelete_ConflictChecksObject(t *testing.T) {
	other := object("settings")
	other.Metadata.UID = "another"
	for claim, c := range map[string]struct {
		there gleaner.Object
		want  gleaner.Decision
	}{
		"another object has its name": {other, gleaner.Done},
		"it is still there":           {object("settings"), gleaner.Wait},
	} {
		got := attempt(t, allFields["delete"], request(), func(i gleaner.Intent) gleaner.Result {
			if i.Delete != nil {
				return gleanertest.ErrorResult(gleaner.ErrorConflict, "oh")
			}
			return gleaner.Result{Object: &c.there}
		})
		if got.Verdict.Decision != c.want || ids(got.Intents) != "a a.look" {
			t.Errorf("%s: %+v", claim, got)
		}
	}
}

func TestCall_ChecksStatus(t *testing.T) {
	for status, want := range map[int]gleaner.Decision{
		200: gleaner.Done, 204: gleaner.Done, 404: gleaner.Done, 410: gleaner.Done,
		408: gleaner.Wait, 425: gleaner.Wait, 429: gleaner.Wait, 500: gleaner.Wait, 503: gleaner.Wait,
		302: gleaner.Fail, 400: gleaner.Fail, 401: gleaner.Fail, 403: gleaner.Fail, 409: gleaner.Fail, 0: gleaner.Fail,
	} {
		body := "because " + strings.Repeat("ö", 2000)
		got := attempt(t, allFields["http"], request(), gleanertest.RespondWith(status, body))
		stopped := got.Verdict.Decision != gleaner.Done
		if got.Verdict.Decision != want || stopped && !strings.Contains(got.Verdict.Reason, fmt.Sprintf("status %d: because ö", status)) {
			t.Errorf("%d: %+v", status, got.Verdict)
		}
	}
}

func TestCall_RespectsRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"7": 7 * time.Second, "0": time.Second, "-5": time.Second, "999999999": time.Hour, "Fri, 02 Jan 2026 12:00:00 GMT": time.Second,
	} {
		got := attempt(t, allFields["http"], request(), func(gleaner.Intent) gleaner.Result {
			return gleaner.Result{HTTP: &gleaner.HTTPResult{Status: 429, Headers: map[string]string{"Retry-After": header}}}
		})
		if got.Verdict.WaitFor() != want {
			t.Errorf("Retry-After %s: %s", header, got.Verdict.WaitFor())
		}
	}
}

func TestSteps_WaitForWrongResultType(t *testing.T) {
	for name, step := range allFields {
		got := attempt(t, step, request(), func(gleaner.Intent) gleaner.Result { return gleaner.Result{} })
		want := gleaner.Wait
		if name == "create" || name == "delete" {
			want = gleaner.Done // no error is all that their results say
		}
		if got.Verdict.Decision != want {
			t.Errorf("%s: %+v", name, got.Verdict)
		}
	}
}

func TestStopped_StepsDoNothing(t *testing.T) {
	got := attempt(t, func(s *finalize.Steps) {
		s.Wait(time.Minute, "first")
		if !s.Stopped() {
			t.Error("it has not stopped")
		}
		for _, name := range []string{"get", "list", "create", "delete", "patch", "http", "each", "gone"} {
			allFields[name](s)
		}
		s.Warn("w", "Late", "late")
		s.SaveState("late")
		s.Once("late", func() { t.Error("Once goes on") })
		s.All(func() { t.Error("All goes on") })
		s.GiveUpBy(s.AfterDeletion(0), func() { t.Error("GiveUpBy goes on") })
		s.Settings(&struct{}{})
		s.Done("late")
		s.Fail("late")
	}, request(), nil)
	if want := (gleaner.Verdict{Decision: gleaner.Wait, After: gleaner.DurationOf(time.Minute), Reason: "first"}); !reflect.DeepEqual(got.Verdict, want) {
		t.Errorf("got %+v", got.Verdict)
	}
}

func TestStopped_DetectsEndlessLoop(t *testing.T) {
	_, err := gleanertest.Call(runSteps(func(s *finalize.Steps) {
		for i := 0; ; i++ {
			if _, found := s.Get(fmt.Sprint(i), settings); found {
				break
			}
		}
	}), request())
	if err == nil || !strings.Contains(err.Error(), "must end when Stopped is true") {
		t.Errorf("got %v", err)
	}
}

func TestRun_ReportsBugs(t *testing.T) {
	for claim, c := range map[string]struct {
		steps func(*finalize.Steps)
		says  string
	}{
		"one id for two steps": {func(s *finalize.Steps) {
			s.All(func() { s.Get("a", settings) }, func() { s.Get("a", settings) })
		}, "two steps have id a"},
		"a delete of anything": {func(s *finalize.Steps) { s.Delete("a", gleaner.Object{Kind: "ConfigMap"}) }, "it has no UID"},
		"no JSON":              {func(s *finalize.Steps) { s.Create("a", make(chan int)) }, "encode the object of step a"},
		"nothing to remember":  {func(s *finalize.Steps) { s.SaveState(func() {}) }, "save state"},
		"too much to remember": {func(s *finalize.Steps) { s.SaveState(strings.Repeat("x", 5000)); s.Wait(0, "") }, "at most 4096"},
		"another type": {func(s *finalize.Steps) {
			s.SaveState("text")
			var n int
			s.LoadState(&n)
		}, "load state"},
	} {
		_, err := gleanertest.Call(runSteps(c.steps), request())
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", claim, err)
		}
	}
	r := request()
	r.State = []byte(`"another module's"`)
	if _, err := gleanertest.Call(runSteps(func(*finalize.Steps) {}), r); err == nil || !strings.Contains(err.Error(), "decode state") {
		t.Errorf("a state of another module: %v", err)
	}
}

func TestSettings_InvalidFails(t *testing.T) {
	r := request()
	r.Policy.Settings = []byte(`{"bucket": "b", "colour": 1}`)
	var into struct{ Bucket string }
	got := attempt(t, func(s *finalize.Steps) { s.Settings(&into) }, r, nil)
	if got.Verdict.Decision != gleaner.Fail || !strings.Contains(got.Verdict.Reason, "colour") {
		t.Errorf("got %+v", got.Verdict)
	}
}

func TestIdentifier(t *testing.T) {
	texts := []string{"", "a", "ä", "a/b", "a_b", "a:b", strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 65), "system:node"}
	got := attempt(t, func(s *finalize.Steps) {
		var branches []func()
		for _, text := range texts {
			branches = append(branches, func() { s.Get(text, settings) })
		}
		s.All(branches...)
	}, request(), errorResults(gleaner.ErrorNotFound))
	if len(got.Intents) != len(texts) || got.Verdict.Decision != gleaner.Done {
		t.Errorf("got %s", ids(got.Intents))
	}
}

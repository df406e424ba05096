package gleanertest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

func TestCall_ReturnsVerdictAndLog(t *testing.T) {
	got, err := gleanertest.Call(func(r gleaner.Request) (gleaner.Verdict, error) {
		gleaner.Debugf("asked about %s", r.Object.Metadata.Name)
		gleaner.Infof("of %s", r.Owners[0].Reference.Name)
		gleaner.Warnf("at %s", r.Time.Format(time.TimeOnly))
		gleaner.Errorf("%d", r.Attempt)
		return gleaner.Verdict{Decision: gleaner.Wait, After: gleaner.DurationOf(time.Hour), State: json.RawMessage(`{ "a": 1 }`)}, nil
	}, gleanertest.Request(gleaner.Collect))
	want := gleanertest.CallResult{
		Verdict: gleaner.Verdict{Decision: gleaner.Wait, After: gleaner.DurationOf(time.Hour), State: json.RawMessage(`{"a":1}`)},
		Log: []gleanertest.Line{
			{Level: hostabi.LogDebug, Message: "asked about object"}, {Level: hostabi.LogInfo, Message: "of owner"},
			{Level: hostabi.LogWarn, Message: "at 12:00:00"}, {Level: hostabi.LogError, Message: "1"},
		},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

func TestCall_RejectsInvalidVerdict(t *testing.T) {
	asked := 0
	for claim, c := range map[string]struct {
		handler gleaner.Handler
		message string
	}{
		"no decision": {answer(gleaner.Verdict{}), `decision is ""`},
		"a decision of another hook": {answer(gleaner.Verdict{Decision: gleaner.Done}),
			"write Delete, Orphan, Wait, Act or Abstain"},
		"a field that means nothing": {answer(gleaner.Verdict{Decision: gleaner.Orphan, After: gleaner.DurationOf(time.Hour)}),
			"after is not allowed with Orphan"},
		"a duration that is too long": {answer(gleaner.Verdict{Decision: gleaner.Wait, After: gleaner.DurationOf(721 * time.Hour)}), "720h"},
		"a state that is no JSON":     {answer(gleaner.Verdict{Decision: gleaner.Wait, State: json.RawMessage(`{`)}), "state is not JSON"},
		"an effect": {answer(gleaner.Verdict{Decision: gleaner.Act, Intents: []gleaner.Intent{
			{ID: "a", HTTP: &gleaner.HTTPIntent{Method: "GET", URL: "https://example.com/"}},
		}}), "which may only read"},
		"an error": {func(gleaner.Request) (gleaner.Verdict, error) { return gleaner.Verdict{}, errors.New("oh") }, "oh"},
		"a panic":  {func(gleaner.Request) (gleaner.Verdict, error) { panic("oh") }, "panicked: oh"},
		"what is remembered in a variable": {func(gleaner.Request) (gleaner.Verdict, error) {
			asked++
			return gleaner.Verdict{Decision: gleaner.Orphan, Reason: fmt.Sprint(asked)}, nil
		}, "two verdicts"},
	} {
		t.Run(claim, func(t *testing.T) {
			got, err := gleanertest.Call(c.handler, gleanertest.Request(gleaner.Collect))
			if err == nil || !strings.Contains(err.Error(), c.message) || !reflect.ValueOf(got.Verdict).IsZero() {
				t.Errorf("got %+v, %v; want an error with %q", got, err, c.message)
			}
		})
	}
}

func TestCall_LargeRequest(t *testing.T) {
	for _, length := range []int{0, 32 << 10, 1 << 20} {
		r := gleanertest.Request(gleaner.Finalize)
		r.Object.Metadata.Annotations = map[string]string{"long": strings.Repeat("x", length)}
		_, err := gleanertest.Call(func(r gleaner.Request) (gleaner.Verdict, error) {
			if got := len(r.Object.Metadata.Annotations["long"]); got != length {
				return gleaner.Verdict{}, fmt.Errorf("%d bytes arrived of %d", got, length)
			}
			return gleaner.Verdict{Decision: gleaner.Done}, nil
		}, r)
		if err != nil {
			t.Error(err)
		}
	}
}

func TestCall_ConcurrentLogs(t *testing.T) {
	var all sync.WaitGroup
	for i := range 50 {
		all.Add(1)
		go func() {
			defer all.Done()
			r := gleanertest.Request(gleaner.Validate)
			r.Policy.Name = fmt.Sprint(i)
			got, err := gleanertest.Call(func(r gleaner.Request) (gleaner.Verdict, error) {
				gleaner.Infof("%s", r.Policy.Name)
				return gleaner.Verdict{Decision: gleaner.Valid}, nil
			}, r)
			if want := []gleanertest.Line{{Level: hostabi.LogInfo, Message: fmt.Sprint(i)}}; err != nil || !reflect.DeepEqual(got.Log, want) {
				t.Errorf("call %d has the log %v, %v", i, got.Log, err)
			}
		}()
	}
	all.Wait()
}

func TestServe_WithoutHostPanics(t *testing.T) {
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "gleanertest.Call") {
			t.Errorf("panicked with %q", p)
		}
	}()
	gleaner.Serve(answer(gleaner.Verdict{Decision: gleaner.Valid}))
}

func answer(v gleaner.Verdict) gleaner.Handler {
	return func(gleaner.Request) (gleaner.Verdict, error) { return v, nil }
}

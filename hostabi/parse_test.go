package hostabi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

func TestAVerdictHasLimits(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int, item string) string {
		var items []string
		for i := range n {
			items = append(items, strings.ReplaceAll(item, "N", fmt.Sprint(i)))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	get := `{"id":"N","get":{"apiVersion":"v1","kind":"Pod","name":"p"}}`
	for claim, c := range map[string]struct {
		hook   hostabi.Hook
		format string
		good   string
		bad    string
		path   string
	}{
		"in bytes":        {"finalize", `{"decision":"Done"}%s`, strings.Repeat(" ", hostabi.MaxVerdictBytes-19), strings.Repeat(" ", hostabi.MaxVerdictBytes-18), ""},
		"in depth":        {"finalize", `{"decision":"Wait","state":%s}`, nested(hostabi.MaxVerdictDepth - 1), nested(hostabi.MaxVerdictDepth), ""},
		"of its state":    {"finalize", `{"decision":"Wait","state":"%s"}`, text(hostabi.MaxStateBytes - 2), text(hostabi.MaxStateBytes - 1), "state"},
		"of its reason":   {"collect", `{"decision":"Orphan","reason":"%s"}`, text(hostabi.MaxReasonBytes), text(hostabi.MaxReasonBytes + 1), "reason"},
		"of its intents":  {"finalize", `{"decision":"Act","intents":%s}`, many(hostabi.MaxIntents, get), many(hostabi.MaxIntents+1, get), "intents"},
		"of dependents":   {"propagate", `{"decision":"Orphan","dependents":%s}`, many(hostabi.MaxDependents, `{"kind":"KN","decision":"Delete"}`), many(hostabi.MaxDependents+1, `{"kind":"KN","decision":"Delete"}`), "dependents"},
		"of a duration":   {"collect", `{"decision":"Wait","after":"%s"}`, "720h", "720h0m0.000000001s", "after"},
		"of an id":        {"finalize", `{"decision":"Act","intents":[{"id":"%s","get":{"apiVersion":"v1","kind":"Pod","name":"p"}}]}`, text(63), text(64), "intents[0].id"},
		"of UTF-8":        {"collect", `{"decision":"Orphan","reason":"%s"}`, "ü", "\xfc", ""},
		"of a null byte":  {"collect", `{"decision":"Orphan"}%s`, "\n", "\x00", ""},
		"of empty names":  {"collect", `{"decision":"Orphan"%s}`, "", `,"":1`, `[""]`},
		"of control keys": {"collect", `{"decision":"Orphan"%s}`, "", `,"a\u0000":1`, `["a\x00"]`},
	} {
		t.Run(claim, func(t *testing.T) {
			if _, err := hostabi.ParseVerdict(c.hook, fmt.Appendf(nil, c.format, c.good)); err != nil {
				t.Errorf("what is just within it: %v", err)
			}
			_, err := hostabi.ParseVerdict(c.hook, fmt.Appendf(nil, c.format, c.bad))
			if bad := new(hostabi.VerdictError); !errors.As(err, &bad) || bad.Path != c.path {
				t.Errorf("what is just beyond it: %v, wanted an error at %q", err, c.path)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("the message repeats what the module wrote: %d bytes", len(err.Error()))
			}
		})
	}
}

// Depth is bounded before anything recurses, so not even a document that is all
// brackets costs more than a look at it.
func TestBracketsAloneDoNoHarm(t *testing.T) {
	for _, c := range []string{"[", "{", `{"a":`, `[{"a":`} {
		if _, err := hostabi.ParseVerdict(hostabi.HookCollect, []byte(strings.Repeat(c, hostabi.MaxVerdictBytes/len(c)))); err == nil {
			t.Errorf("%s is accepted", c)
		}
	}
}

func TestWhatIsReadIsWhatWasMeant(t *testing.T) {
	seconds := int64(30)
	for text, want := range map[string]hostabi.Verdict{
		`{"decision":"Act","state":{"b": 1, "a": [ ]},"reason":"\u00fc<&>","intents":[
			{"id":"d","delete":{"apiVersion":"apps/v1","kind":"Deployment","namespace":"n","name":"x","uid":"u","gracePeriodSeconds":30}},
			{"id":"h","http":{"method":"PUT","url":"https://example.com/a?b","headers":{"A":"1"},"body":"{}"}}]}`: {
			Decision: hostabi.DecisionAct, State: json.RawMessage(`{"b":1,"a":[]}`), Reason: "ü<&>",
			Intents: []hostabi.Intent{
				{ID: "d", Delete: &hostabi.DeleteIntent{
					Target: hostabi.Target{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "n", Name: "x"},
					UID:    "u", GracePeriodSeconds: &seconds,
				}},
				{ID: "h", HTTP: &hostabi.HTTPIntent{
					Method: "PUT", URL: "https://example.com/a?b", Headers: map[string]string{"A": "1"}, Body: "{}",
				}},
			},
		},
		`{"decision":"Wait","after":"90m"}`: {Decision: hostabi.DecisionWait, After: hostabi.Duration(90 * time.Minute)},
	} {
		got, err := hostabi.ParseVerdict(hostabi.HookFinalize, []byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v, %v\nwant %+v", text, got, err, want)
		}
	}
}

func TestWaitingWithoutATimeTakesThirtySeconds(t *testing.T) {
	for _, c := range []struct {
		after hostabi.Duration
		want  time.Duration
	}{{0, 30 * time.Second}, {hostabi.Duration(time.Hour), time.Hour}} {
		if got := (hostabi.Verdict{Decision: hostabi.DecisionWait, After: c.after}).WaitFor(); got != c.want {
			t.Errorf("after %s: waits for %s, not %s", c.after, got, c.want)
		}
	}
}

func TestWritingAVerdictRefusesWhatIsNoJSON(t *testing.T) {
	for claim, v := range map[string]hostabi.Verdict{
		"state":  {State: json.RawMessage("{")},
		"create": {Intents: []hostabi.Intent{{ID: "a", Create: &hostabi.CreateIntent{}}}},
		"patch":  {Intents: []hostabi.Intent{{ID: "a", Patch: &hostabi.PatchIntent{Patch: json.RawMessage("x")}}}},
	} {
		if data, err := hostabi.MarshalVerdict(v); err == nil {
			t.Errorf("%s: wrote %s", claim, data)
		}
	}
}

func TestEveryHookHasItsDecisions(t *testing.T) {
	for _, hook := range hostabi.Hooks() {
		for _, d := range hostabi.Decisions(hook) {
			_, err := hostabi.ParseVerdict(hook, fmt.Appendf(nil, `{"decision":%q}`, d))
			if needsMore := d == hostabi.DecisionAct; (err != nil) != needsMore {
				t.Errorf("%s: %s: %v", hook, d, err)
			}
		}
	}
	if got := hostabi.Decisions("invent"); got != nil {
		t.Errorf("a hook that there is not has decisions: %v", got)
	}
}

// FuzzParseVerdict: nothing panics; what is accepted obeys the limits, and is
// the same when it is written and read again.
func FuzzParseVerdict(f *testing.F) {
	_, entries := readCorpus(f)
	for _, e := range entries {
		f.Add(string(e.hook), []byte(e.text))
	}
	f.Fuzz(func(t *testing.T, hook string, data []byte) {
		first, err := hostabi.ParseVerdict(hostabi.Hook(hook), data)
		if err != nil {
			if !reflect.ValueOf(first).IsZero() {
				t.Fatalf("a verdict beside an error: %+v", first)
			}
			return
		}
		if !slices.Contains(hostabi.Decisions(hostabi.Hook(hook)), first.Decision) {
			t.Fatalf("accepted a decision of %q", first.Decision)
		}
		written, err := hostabi.MarshalVerdict(first)
		if err != nil {
			t.Fatalf("write what was read: %v", err)
		}
		second, err := hostabi.ParseVerdict(hostabi.Hook(hook), written)
		if err != nil {
			t.Fatalf("read again %s: %v", written, err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("read again, it is another:\n%+v\n%+v", first, second)
		}
		for _, i := range first.Intents {
			if i.Type() == "" {
				t.Fatalf("accepted an intent that asks for not exactly one thing: %+v", i)
			}
		}
		if len(first.State) > hostabi.MaxStateBytes || bytes.Equal(first.State, []byte("null")) {
			t.Fatalf("accepted the state %s", first.State)
		}
	})
}

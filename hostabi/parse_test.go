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

func TestParseVerdict_EnforcesLimits(t *testing.T) {
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
				t.Errorf("at the limit: %v", err)
			}
			_, err := hostabi.ParseVerdict(c.hook, fmt.Appendf(nil, c.format, c.bad))
			if bad := new(hostabi.VerdictError); !errors.As(err, &bad) || bad.Path != c.path {
				t.Errorf("above the limit: got %v, want an error at %q", err, c.path)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("the message repeats the verdict: %d bytes", len(err.Error()))
			}
		})
	}
}

// Depth is bounded before anything recurses, so even a document of brackets only
// is cheap to reject.
func TestParseVerdict_BoundsDepth(t *testing.T) {
	for _, c := range []string{"[", "{", `{"a":`, `[{"a":`} {
		if _, err := hostabi.ParseVerdict(hostabi.HookCollect, []byte(strings.Repeat(c, hostabi.MaxVerdictBytes/len(c)))); err == nil {
			t.Errorf("%s is accepted", c)
		}
	}
}

func TestParseVerdict_DecodesFields(t *testing.T) {
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

func TestWaitFor_DefaultsTo30Seconds(t *testing.T) {
	for _, c := range []struct {
		after hostabi.Duration
		want  time.Duration
	}{{0, 30 * time.Second}, {hostabi.Duration(time.Hour), time.Hour}, {hostabi.Duration(time.Millisecond), time.Second}} {
		if got := (hostabi.Verdict{Decision: hostabi.DecisionWait, After: c.after}).WaitFor(); got != c.want {
			t.Errorf("after %s: waits for %s, not %s", c.after, got, c.want)
		}
	}
}

func TestMarshalVerdict_RejectsInvalidJSON(t *testing.T) {
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

func TestDecisions_ForEveryHook(t *testing.T) {
	for _, hook := range hostabi.Hooks() {
		for _, d := range hostabi.Decisions(hook) {
			_, err := hostabi.ParseVerdict(hook, fmt.Appendf(nil, `{"decision":%q}`, d))
			if needsMore := d == hostabi.DecisionAct; (err != nil) != needsMore {
				t.Errorf("%s: %s: %v", hook, d, err)
			}
		}
	}
	if got := hostabi.Decisions("invent"); got != nil {
		t.Errorf("an unknown hook has decisions: %v", got)
	}
}

// The time to parse a verdict of the maximum size does not depend on its content: parsing
// is not bounded by the module's fuel.
func TestParseVerdict_TakesBoundedTime(t *testing.T) {
	const room = hostabi.MaxVerdictBytes - 200
	fields := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < room-40; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	deep := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	for name, text := range map[string]string{
		"many unknown fields":        `{"decision":"Wait",` + fields(`"f%d":1,`) + `}`,
		"many fields of one name":    `{` + strings.TrimSuffix(strings.Repeat(`"decision":"Wait",`, room/18), ",") + `}`,
		"many fields in the state":   `{"decision":"Wait","state":{` + fields(`"f%d":1,`) + `}}`,
		"many intents":               `{"decision":"Act","intents":[` + fields(`{"id":"i%d"},`) + `]}`,
		"many dependents":            `{"decision":"Orphan","dependents":[` + fields(`{"kind":"K%d"},`) + `]}`,
		"many headers":               `{"decision":"Act","intents":[{"id":"a","http":{"method":"GET","url":"https://a","headers":{` + fields(`"h%d":"",`) + `}}}]}`,
		"a large object":             `{"decision":"Act","intents":[{"id":"a","create":{"object":{` + fields(`"f%d":[{}],`) + `}}}]}`,
		"a long text":                `{"decision":"Wait","reason":"` + strings.Repeat("a", room) + `"}`,
		"a long text, escaped":       `{"decision":"Wait","reason":"` + strings.Repeat(`\u0061`, room/6) + `"}`,
		"a long number":              `{"decision":"Delete","gracePeriodSeconds":` + strings.Repeat("1", room) + `}`,
		"a long duration":            `{"decision":"Wait","after":"` + strings.Repeat("1s", room/2) + `"}`,
		"brackets within each other": `{"decision":"Wait","state":[` + strings.TrimSuffix(strings.Repeat(deep+",", room/121), ",") + `]}`,
		"brackets that never close":  strings.Repeat("[", room),
		"nothing but space":          strings.Repeat(" ", room),
	} {
		began := time.Now()
		for _, hook := range hostabi.Hooks() {
			if v, err := hostabi.ParseVerdict(hook, []byte(text)); err != nil && !reflect.ValueOf(v).IsZero() {
				t.Errorf("%s: a verdict with an error", name)
			}
		}
		if took := time.Since(began); took > 20*time.Second { // about 0.1 s on an idle machine; 105 s when an error was formatted for each field
			t.Errorf("%s: four verdicts of 1 MiB took %s", name, took)
		}
	}
}

// FuzzParseVerdict checks that ParseVerdict does not panic, and that accepted verdicts
// are within the limits and survive a round trip.
func FuzzParseVerdict(f *testing.F) {
	_, entries := readCorpus(f)
	for _, e := range entries {
		f.Add(string(e.hook), []byte(e.text))
	}
	f.Fuzz(func(t *testing.T, hook string, data []byte) {
		first, err := hostabi.ParseVerdict(hostabi.Hook(hook), data)
		if err != nil {
			if !reflect.ValueOf(first).IsZero() {
				t.Fatalf("a verdict with an error: %+v", first)
			}
			return
		}
		if !slices.Contains(hostabi.Decisions(hostabi.Hook(hook)), first.Decision) {
			t.Fatalf("accepted a decision of %q", first.Decision)
		}
		written, err := hostabi.MarshalVerdict(first)
		if err != nil {
			t.Fatalf("marshal the parsed verdict: %v", err)
		}
		second, err := hostabi.ParseVerdict(hostabi.Hook(hook), written)
		if err != nil {
			t.Fatalf("parse again %s: %v", written, err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("changed after a round trip:\n%+v\n%+v", first, second)
		}
		if again, err := hostabi.MarshalVerdict(second); err != nil || !bytes.Equal(written, again) {
			t.Fatalf("marshaled differently (%v):\n%s\n%s", err, written, again)
		}
		if first.WaitFor() < time.Duration(hostabi.MinWait) || first.After < 0 || first.After > hostabi.MaxDuration || first.Delay < 0 || first.Delay > hostabi.MaxDuration {
			t.Fatalf("accepted after %s, delay %s", first.After, first.Delay)
		}
		if len(first.Intents) > hostabi.MaxIntents || len(first.Dependents) > hostabi.MaxDependents || len(first.Reason) > hostabi.MaxReasonBytes {
			t.Fatalf("accepted %d intents, %d dependents, a reason of %d bytes", len(first.Intents), len(first.Dependents), len(first.Reason))
		}
		for _, i := range first.Intents {
			if i.Type() == "" {
				t.Fatalf("accepted an intent without exactly one type: %+v", i)
			}
		}
		if len(first.State) > hostabi.MaxStateBytes || bytes.Equal(first.State, []byte("null")) {
			t.Fatalf("accepted the state %s", first.State)
		}
	})
}

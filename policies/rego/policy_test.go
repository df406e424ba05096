package rego

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// keep orphans what is labeled so, and deletes what else has lost its owners.
var keep = File{"keep.rego", `package gleaner

import data.gleaner.sdk.meta
import data.gleaner.sdk.owners
import data.gleaner.sdk.verdict

collect := verdict.with_reason(verdict.orphan, sprintf("%s is labelled keep", [input.object.metadata.name])) if {
	meta.has_label("keep", "true")
} else := verdict.with_reason(verdict.delete, "nobody owns it") if {
	owners.all_absent
} else := verdict.abstain
`}

func TestEvaluate(t *testing.T) {
	p := newPolicy(t, newEngine(t), sandbox.Limits{}, keep)
	for claim, c := range map[string]struct {
		request hostabi.Request
		want    hostabi.Verdict
	}{
		"by what the object says": {
			request("collect", map[string]string{"keep": "true"}, hostabi.OwnerAbsent),
			hostabi.Verdict{Decision: hostabi.DecisionOrphan, Reason: "a is labelled keep"},
		},
		"by what its owners do": {
			request("collect", nil, hostabi.OwnerAbsent),
			hostabi.Verdict{Decision: hostabi.DecisionDelete, Reason: "nobody owns it"},
		},
		"cautiously where an owner is not known": {
			request("collect", nil, hostabi.OwnerAbsent, hostabi.OwnerUnknown),
			hostabi.Verdict{Decision: hostabi.DecisionAbstain},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			got, err := p.Evaluate(t.Context(), c.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoad_DescribesModule(t *testing.T) {
	h := newEngine(t)
	m, err := h.Load(t.Context(), []File{keep})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	if diff := cmp.Diff([]hostabi.Hook{"collect"}, m.Hooks); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"sprintf"}, m.Builtins); diff != "" {
		t.Error(diff)
	}
	if m.Digest != Digest([]File{keep}) || m.Size < 100_000 {
		t.Errorf("digest %s, %d bytes", m.Digest, m.Size)
	}
}

// What a fault says to write instead has to be a verdict of that hook.
func TestUndefinedRule_FaultSuggestsValidVerdicts(t *testing.T) {
	h := newEngine(t)
	for hook, decisions := range map[hostabi.Hook]int{
		hostabi.HookPropagate: 1, hostabi.HookCollect: 1, hostabi.HookFinalize: 3, hostabi.HookValidate: 2,
	} {
		t.Run(string(hook), func(t *testing.T) {
			p := newPolicy(t, h, sandbox.Limits{}, File{"a.rego", fmt.Sprintf("package gleaner\n%s := {} if input.never", hook)})
			_, err := p.Evaluate(t.Context(), request(hook, nil))
			var fault *policies.Fault
			if !errors.As(err, &fault) {
				t.Fatal(err)
			}
			suggested := regexp.MustCompile(`\{[^}]*\}`).FindAllString(fault.Message, -1)
			for _, text := range suggested {
				if _, err := hostabi.ParseVerdict(hook, []byte(text)); err != nil {
					t.Errorf("it suggests %s: %v", text, err)
				}
			}
			if len(suggested) != decisions {
				t.Errorf("%d suggestions: %s", len(suggested), fault.Message)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	h := newEngine(t)
	for claim, c := range map[string]struct{ rules, want string }{
		"a rule that is undefined": {
			`collect := {"decision": "Delete"} if input.never`,
			`rule collect is undefined for this request; return {"decision": "Abstain"} to leave the decision to the next policy`,
		},
		"a hook that there is not": {
			`propagate := {"decision": "Orphan"}`,
			`it has no rule collect`,
		},
		"a decision of another hook": {
			`collect := {"decision": "Foreground"}`,
			`rule collect: verdict: decision`,
		},
		"a field that nobody knows": {
			`collect := {"decision": "Delete", "becuase": "x"}`,
			`rule collect: verdict: becuase`,
		},
		"a verdict that is no object": {
			`collect := "Delete"`,
			`rule collect: the verdict is`,
		},
		"two verdicts at once": {
			"collect := {\"decision\": \"Delete\"} if input.attempt\ncollect := {\"decision\": \"Orphan\"} if input.round",
			`rule collect: a.rego:3: the rule or function has conflicting values: make its conditions mutually exclusive, or use else`,
		},
		"a built-in that asks for too much": {
			`collect := {"decision": "Delete", "reason": sprintf("%900000d%900000d", [1, 1])}`,
			`rule collect: sprintf: the result could exceed 1048576 bytes`,
		},
		"a verdict that is too long": {
			`collect := {"decision": "Abstain", "state": c}
a := concat("", ["x" | some _ in numbers.range(1, 1100)])
c := concat("", [a | some _ in numbers.range(1, 1000)])`,
			`rule collect: it returned a text of more than`,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			p := newPolicy(t, h, sandbox.Limits{}, File{"a.rego", "package gleaner\n" + c.rules})

			verdict, err := p.Evaluate(t.Context(), request("collect", nil))

			var fault *policies.Fault
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, %v", verdict, err)
			}
			if fault.Policy != "test" || fault.Kind == "" || !strings.HasPrefix(fault.Message, c.want) {
				t.Errorf("got  %s\nwant %s", fault.Message, c.want)
			}
			if diff := cmp.Diff(hostabi.Verdict{}, verdict); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEvaluate_CanceledContextIsNoFault(t *testing.T) {
	p := newPolicy(t, newEngine(t), sandbox.Limits{}, keep)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_, err := p.Evaluate(ctx, request("collect", nil))

	if fault := (*policies.Fault)(nil); err == nil || errors.As(err, &fault) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLoad_FailsAfterClose(t *testing.T) {
	h, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	h.Close()

	if _, err := h.Load(t.Context(), []File{keep}); err == nil {
		t.Error("it loaded a policy")
	}
}

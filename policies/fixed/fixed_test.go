package fixed_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/fixed"
	"github.com/gleaner-dev/gleaner/policies/policytest"
)

func TestEvaluate_DefaultCases(t *testing.T) {
	p, err := fixed.New("default", map[hostabi.Hook][]byte{
		hostabi.HookCollect:   []byte(`{"decision": "Delete", "propagation": "Background"}`),
		hostabi.HookPropagate: []byte(`{"decision": "Background"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	policytest.Run(t, p, "../policytest/testdata/default.yaml")
}

func TestEvaluate_SameVerdictForEveryObject(t *testing.T) {
	p, err := fixed.New("keep", map[hostabi.Hook][]byte{
		hostabi.HookCollect: []byte(`{"decision": "Orphan", "reason": "data stays"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	policytest.Run(t, p, "testdata/keep.yaml")
}

func TestNew_RejectsInvalidVerdict(t *testing.T) {
	for claim, c := range map[string]struct {
		hook    hostabi.Hook
		verdict string
		message string
		parsed  bool // the strict parser says so
	}{
		"of another hook":     {hostabi.HookCollect, `{"decision":"Foreground"}`, "write Delete, Orphan, Wait, Act or Abstain", true},
		"with a typing error": {hostabi.HookPropagate, `{"decision":"Orphan","raeson":"x"}`, "raeson is unknown", true},
		"nothing":             {hostabi.HookCollect, ``, "is empty", true},
		"null":                {hostabi.HookCollect, `null`, "is null", true},
		"an Act": {hostabi.HookCollect,
			`{"decision":"Act","intents":[{"id":"a","get":{"apiVersion":"v1","kind":"Pod","name":"p"}}]}`, "use a module", false},
		"for finalize":   {hostabi.HookFinalize, `{"decision":"Done"}`, "write it for propagate, collect, protect or retain", false},
		"for validate":   {hostabi.HookValidate, `{"decision":"Valid"}`, "write it for propagate, collect, protect or retain", false},
		"for no hook":    {"Collect", `{"decision":"Orphan"}`, "write it for propagate, collect, protect or retain", false},
		"of two objects": {hostabi.HookCollect, `{"decision":"Orphan"}{}`, "not one JSON document", true},
	} {
		t.Run(claim, func(t *testing.T) {
			p, err := fixed.New("p", map[hostabi.Hook][]byte{c.hook: []byte(c.verdict)})
			if p != nil || err == nil || !strings.Contains(err.Error(), c.message) || !strings.HasPrefix(err.Error(), string(c.hook)+": ") {
				t.Errorf("got %v, %v; want an error with %q", p, err, c.message)
			}
			if got := errors.As(err, new(*hostabi.VerdictError)); got != c.parsed {
				t.Errorf("a *VerdictError: %t, wanted %t", got, c.parsed)
			}
		})
	}
}

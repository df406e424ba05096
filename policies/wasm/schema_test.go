package wasm_test

import (
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/settings"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

func withSchema(t *testing.T, code []byte, schema string) []byte {
	t.Helper()
	code, err := settings.Embed(code, []byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestSettingsSchema_IsCheckedByTheHookValidate(t *testing.T) {
	code := withSchema(t, newModule().answers(abstain), `{"required": ["size"]}`)
	m := load(t, engine(t), code)
	if len(m.Hooks) == 0 || m.Hooks[len(m.Hooks)-1] != hostabi.HookValidate {
		t.Fatalf("its hooks are %q, want validate among them", m.Hooks)
	}
	p := policy(t, m, wasm.Options{})
	for text, want := range map[string]hostabi.Verdict{
		`{"size": 1}`: {Decision: hostabi.DecisionValid},
		`{}`:          {Decision: hostabi.DecisionInvalid, Reason: "settings: missing property 'size'"},
	} {
		r := hostabi.Request{APIVersion: hostabi.Version, Hook: hostabi.HookValidate, Attempt: 1, Round: 1, Policy: hostabi.Policy{Name: "p", Settings: []byte(text)}}
		if got, err := p.Evaluate(t.Context(), r); err != nil || got.Decision != want.Decision || got.Reason != want.Reason {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestSettingsSchema_AnInvalidOneIsRejected(t *testing.T) {
	code := withSchema(t, newModule().answers(abstain), `{"type": "objekt"}`)
	if _, err := engine(t).Load(t.Context(), code); err == nil || !strings.Contains(err.Error(), "the schema of the settings is invalid") {
		t.Errorf("Load() = %v, want that the schema is invalid", err)
	}
}

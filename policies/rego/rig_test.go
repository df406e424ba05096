package rego

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// newHost returns an engine that compiles everything anew.
func newEngine(t testing.TB) *Engine {
	t.Helper()
	h, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// underRace tells that the race detector looks on, with which compiling takes ten
// times as long.
var underRace bool

// notUnderRace is for tests that compile hundreds of modules.
func notUnderRace(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("its cases run one after another, in one goroutine: there is nothing to race")
	}
}

// newPolicy compiles files and returns the policy.
func newPolicy(t testing.TB, h *Engine, limits sandbox.Limits, files ...File) *Policy {
	t.Helper()
	m, err := h.Load(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	p, err := NewPolicy(t.Context(), m, Options{Name: "test", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// value asks a hook for its value, whatever it is.
func value(ctx context.Context, p *Policy, hook hostabi.Hook, input string) (string, error) {
	answer, _, err := p.evalDocument(ctx, hook, []byte(input))
	return string(answer), err
}

// request is one about an object with labels, whose owners stand so.
func request(hook hostabi.Hook, labels map[string]string, standings ...hostabi.OwnerStatus) hostabi.Request {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "a", "namespace": "b", "uid": "1", "resourceVersion": "2", "labels": labels},
	})
	if err != nil {
		panic(err)
	}
	r := hostabi.Request{Hook: hook, Attempt: 1, Round: 1}
	if err := json.Unmarshal(body, &r.Object); err != nil {
		panic(err)
	}
	for _, s := range standings {
		r.Owners = append(r.Owners, hostabi.Owner{Status: s})
	}
	return r
}

// kind says what the policy did wrong.
func kind(p *Policy, err error) policies.FaultKind {
	if fault := (*policies.Fault)(nil); err != nil && errors.As(p.fault("collect", err), &fault) {
		return fault.Kind
	}
	return ""
}

package policytest_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/policytest"
)

var testTime = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// scripted answers one verdict after another, or errors.
type scripted struct {
	verdicts []hostabi.Verdict
	err      error
}

func (*scripted) Name() string { return "scripted" }

func (s *scripted) Evaluate(context.Context, hostabi.Request) (hostabi.Verdict, error) {
	if s.err != nil {
		return hostabi.Verdict{}, s.err
	}
	v := s.verdicts[0]
	s.verdicts = s.verdicts[1:]
	return v, nil
}

func TestParse_FillsInDefaults(t *testing.T) {
	cases, err := policytest.Parse([]byte(`
request: {policy: {settings: {a: 1, b: 2}}}
cases:
- name: claim
  request: {hook: collect, policy: {settings: {b: null, c: {d: e}}}, object: {metadata: {name: mine, labels: {x: "y"}}}}
  want: {decision: Delete}
`))
	if err != nil {
		t.Fatal(err)
	}
	object := hostabi.Object{APIVersion: "v1", Kind: "ConfigMap", Metadata: hostabi.Metadata{
		Name: "mine", Namespace: "shop", UID: "uid", ResourceVersion: "7", Labels: map[string]string{"x": "y"},
	}}
	object.Body = json.RawMessage(`{"apiVersion":"v1","kind":"ConfigMap","metadata":` +
		`{"labels":{"x":"y"},"name":"mine","namespace":"shop","resourceVersion":"7","uid":"uid"}}`)
	reference := hostabi.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner-uid"}
	want := []policytest.Case{{
		Name: "claim", Line: 4,
		Request: hostabi.Request{
			APIVersion: hostabi.Version, Hook: hostabi.HookCollect,
			Policy: hostabi.Policy{Name: "policy", Settings: json.RawMessage(`{"a":1,"c":{"d":"e"}}`)},
			Object: object, Owners: []hostabi.Owner{{Reference: reference, Status: hostabi.OwnerAbsent}},
			RequestedPropagation: hostabi.RequestedUnspecified, OwnersAbsentSince: &testTime, Time: testTime, Attempt: 1, Round: 1, IdempotencyKey: "key",
		},
		Want: hostabi.Verdict{Decision: hostabi.DecisionDelete},
	}}
	if diff := cmp.Diff(want, cases); diff != "" {
		t.Errorf("cases (-want +got):\n%s", diff)
	}
}

func TestParse_NullRemovesDefault(t *testing.T) {
	cases, err := policytest.Parse([]byte(`
request: {hook: collect, object: {metadata: {namespace: null}}}
cases:
- name: claim
  request: {owners: null}
  want: {decision: Delete}
`))
	if err != nil {
		t.Fatal(err)
	}
	if r := cases[0].Request; r.Object.Metadata.Namespace != "" || r.Owners != nil || r.Object.Metadata.Name != "object" {
		t.Errorf("got %+v", r)
	}
}

func TestLoadSuite_ReadsModulesAndLines(t *testing.T) {
	const question = `, request: {hook: collect}, want: {decision: Delete}}`
	for claim, c := range map[string]struct {
		file    string
		modules []string
		lines   []int
	}{
		"a module":         {"module: a.rego\ncases:\n- {name: x" + question, []string{"a.rego"}, []int{3}},
		"several modules":  {"module: [a.rego, b.wasm]\ncases:\n- {name: x" + question, []string{"a.rego", "b.wasm"}, []int{3}},
		"no module":        {"cases:\n- {name: x" + question, nil, []int{2}},
		"a part of a name": {"cases:\n- name: it goes there\n  request: {hook: validate}\n  want: {decision: Valid}\n- name: \"it goes\"\n  request: {hook: validate}\n  want: {decision: Valid}", nil, []int{2, 5}},
		"names above":      {"request:\n  object:\n    metadata:\n      name: x\ncases:\n- name: x # a claim\n  request: {hook: validate}\n  want: {decision: Valid}", nil, []int{6}},
		"JSON":             {"{\"cases\": [\n{\"name\": \"x\", \"request\": {\"hook\": \"validate\"}, \"want\": {\"decision\": \"Valid\"}}]}", nil, []int{2}},
		"a name in parts":  {"cases:\n- name: >-\n    it\n    goes\n  request: {hook: validate}\n  want: {decision: Valid}", nil, []int{0}},
	} {
		t.Run(claim, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "cases.yaml")
			if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			suite, err := policytest.LoadSuite(file)
			if err != nil {
				t.Fatal(err)
			}
			var lines []int
			for _, read := range suite.Cases {
				lines = append(lines, read.Line)
			}
			if diff := cmp.Diff(c.modules, suite.Modules); diff != "" {
				t.Error("modules", diff)
			}
			if diff := cmp.Diff(c.lines, lines); diff != "" {
				t.Error("lines", diff)
			}
		})
	}
}

func TestParse_RejectsInvalidFile(t *testing.T) {
	for claim, c := range map[string]struct{ file, message string }{
		"a module that is none":        {"module: {a: b}\ncases: [{name: a}]", "module is not a string"},
		"a module without a name":      {"module: ''\ncases: [{name: a}]", "module is empty"},
		"modules, and none of them":    {"module: []\ncases: [{name: a}]", "module is empty"},
		"no cases":                     {"cases: []", "there are no cases"},
		"no document":                  {"", "there are no cases"},
		"an unknown field":             {"cases: [{name: a, request: {hook: collect}, wants: {decision: Delete}}]", `unknown field "wants"`},
		"a repeated field":             {"cases: [{name: a, name: b}]", `"name" already set`},
		"no name":                      {"cases: [{request: {hook: collect}, want: {decision: Delete}}]", "case 1 has no name"},
		"a name twice":                 {"cases: [{name: a, request: {hook: collect}, want: {decision: Delete}}, {name: a}]", "duplicated"},
		"no hook":                      {"cases: [{name: a, want: {decision: Delete}}]", `hook is ""`},
		"no such hook":                 {"cases: [{name: a, request: {hook: Collect}, want: {decision: Delete}}]", `hook is "Collect"`},
		"a field of no use":            {"cases: [{name: a, request: {hook: collect, dependants: {}}, want: {decision: Delete}}]", `unknown field "dependants"`},
		"a wrong status":               {"cases: [{name: a, request: {hook: collect, owners: [{status: Gone}]}, want: {decision: Delete}}]", "owners[0].status"},
		"a wrong requestedPropagation": {"cases: [{name: a, request: {hook: propagate, requestedPropagation: Background}, want: {decision: Orphan}}]", `requestedPropagation is "Background"`},
		"another version":              {"cases: [{name: a, request: {hook: collect, apiVersion: v2}, want: {decision: Delete}}]", `apiVersion is "v2"`},
		"nothing wanted":               {"cases: [{name: a, request: {hook: collect}}]", "either want"},
		"two things wanted":            {"cases: [{name: a, request: {hook: collect}, want: {decision: Delete}, wantFault: x}]", "either want"},
		"any fault":                    {"cases: [{name: a, request: {hook: collect}, wantFault: ''}]", "wantFault is empty"},
		"a verdict in error":           {"cases: [{name: a, request: {hook: collect}, want: {decision: Background}}]", `decision is "Background"`},
	} {
		t.Run(claim, func(t *testing.T) {
			cases, err := policytest.Parse([]byte(c.file))
			if cases != nil || err == nil || !strings.Contains(err.Error(), c.message) {
				t.Errorf("got %v, %v; want an error with %q", cases, err, c.message)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	state := func(s string) hostabi.Verdict {
		return hostabi.Verdict{Decision: hostabi.DecisionWait, State: json.RawMessage(s)}
	}
	deletes, keeps := hostabi.Verdict{Decision: hostabi.DecisionDelete}, hostabi.Verdict{Decision: hostabi.DecisionOrphan}
	fault := &policies.Fault{Policy: "scripted", Message: "it trapped: unreachable"}
	for claim, c := range map[string]struct {
		policy *scripted
		want   hostabi.Verdict
		fault  string
		wrong  string // part of what is wrong; empty: nothing
	}{
		"the right verdict":                          {&scripted{verdicts: []hostabi.Verdict{deletes, deletes}}, deletes, "", ""},
		"another verdict":                            {&scripted{verdicts: []hostabi.Verdict{keeps}}, deletes, "", "-want +got"},
		"another the second time":                    {&scripted{verdicts: []hostabi.Verdict{deletes, keeps}}, deletes, "", "again"},
		"the same state in another order":            {&scripted{verdicts: []hostabi.Verdict{state(`{"a":1,"b":2}`), state(`{"b":2,"a":1}`)}}, state(`{"b":2, "a":1}`), "", ""},
		"another state":                              {&scripted{verdicts: []hostabi.Verdict{state(`{"a":1}`)}}, state(`{"a":2}`), "", "-want +got"},
		"a state where none is wanted":               {&scripted{verdicts: []hostabi.Verdict{state(`1`)}}, state(``), "", "-want +got"},
		"a verdict that nobody may give":             {&scripted{verdicts: []hostabi.Verdict{{Decision: "Destroy"}}}, hostabi.Verdict{Decision: "Destroy"}, "", "invalid verdict"},
		"the fault that is wanted":                   {&scripted{err: fault}, hostabi.Verdict{}, "unreachable", ""},
		"another fault":                              {&scripted{err: fault}, hostabi.Verdict{}, "fuel", "want a fault"},
		"a fault where a verdict is wanted":          {&scripted{err: fault}, deletes, "", "want a verdict"},
		"a verdict where a fault is wanted":          {&scripted{verdicts: []hostabi.Verdict{deletes}}, hostabi.Verdict{}, "fuel", "want a fault"},
		"an error of the host's, and a fault's text": {&scripted{err: errors.New("fuel")}, hostabi.Verdict{}, "fuel", "host error"},
	} {
		t.Run(claim, func(t *testing.T) {
			err := policytest.Check(t.Context(), c.policy, policytest.Case{
				Name: claim, Request: hostabi.Request{Hook: hostabi.HookCollect}, Want: c.want, WantFault: c.fault,
			})
			if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("got %v, want an error with %q", err, c.wrong)
			}
		})
	}
}

// The files here are answered by engines elsewhere; that they can be read is
// seen here already.
func TestLoad_Testdata(t *testing.T) {
	for _, file := range []string{"testdata/default.yaml", "testdata/keep-data.yaml"} {
		if _, err := policytest.Load(file); err != nil {
			t.Error(err)
		}
	}
}

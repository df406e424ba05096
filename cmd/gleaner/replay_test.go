package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/records"
	"github.com/gleaner-dev/gleaner/internal/cli/replay"
	"github.com/gleaner-dev/gleaner/internal/cli/test"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// readingRego asks for an object, and decides by what comes of it.
const readingRego = `package gleaner

collect := {"decision": "Act", "intents": [{"id": "config", "get": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "config"}}]} if not input.results.config

collect := {"decision": "Orphan", "reason": sprintf("<%s>", [input.results.config.error.reason])} if input.results.config
`

// moduleEvaluator evaluates a module as the operator does.
type moduleEvaluator struct {
	module *loader.Module
	name   string
}

// Name implements policies.Evaluator.
func (m moduleEvaluator) Name() string { return m.name }

// Evaluate implements policies.Evaluator.
func (m moduleEvaluator) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	a, err := m.EvaluateMetered(ctx, r)
	return a.Verdict, err
}

// EvaluateMetered implements policies.Evaluator.
func (m moduleEvaluator) EvaluateMetered(ctx context.Context, r hostabi.Request) (policies.Evaluation, error) {
	a, err := m.module.Evaluate(ctx, r)
	return policies.Evaluation{Verdict: a.Verdict, Fuel: a.Usage.Fuel}, err
}

// consulted has the module decide about a claim, as the operator would, and
// returns what the records say of it.
func consulted(t *testing.T, policy, file string) record.Evaluation {
	t.Helper()
	m, err := loader.Load(t.Context(), sandbox.Limits{}, []string{file})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	digests, err := replay.DigestsOf(m, []string{file})
	if err != nil {
		t.Fatal(err)
	}
	claims := catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"}},
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"}},
	}}}, catalog.Settings{})
	p := &policies.Policy{
		Name: policy, Generation: 3, Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{"persistentvolumeclaims"}}},
		Hooks: m.Facts.Hooks, Evaluator: moduleEvaluator{m, policy}, Module: "ClusterPolicyModule " + policy, Digest: digests[0],
		Needs: policies.NeedsReference, Enforce: true, Settings: []byte(`{"keep": "<all>"}`),
	}
	c := evaluate.Evaluator{
		Policies: func() *policies.Set { return policies.NewSet([]*policies.Policy{p}) },
		Default:  builtin.Policy{}, Catalog: func() *catalog.Catalog { return claims },
		Reader:           modulecall.NewLiveReader(&rest.Config{Host: "https://127.0.0.1:1"}),
		Intents:          intents.New(intents.Options{Catalog: func() *catalog.Catalog { return claims }}), // it names no account, and so is let read nothing
		Now:              func() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) },
		DependentsByKind: func(graph.ID) []graph.KindCount { return nil },
	}
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db"}
	evaluation, err := c.Evaluate(t.Context(), evaluate.Input{Hook: hostabi.HookCollect, RequestedPropagation: hostabi.RequestedUnspecified, Facts: decide.Facts{
		Object: graph.Object{UID: "claim", ResourceVersion: "7", Kind: schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"},
			Namespace: "shop", Name: "data", Owners: []metav1.OwnerReference{owner}},
		Owners: []decide.Owner{{Reference: owner, Status: decide.Absent}},
	}})
	if err != nil || len(evaluation.Evaluations) != 1 {
		t.Fatalf("the opinion is %+v, %v", evaluation, err)
	}
	a := evaluation.Evaluations[0]
	asked := record.Evaluation{
		Policy: p.String(), Generation: p.Generation, Mode: "Enforce", Module: p.Module, Digest: p.Digest,
		Decision: string(a.Verdict.Decision), Fuel: a.Fuel, Rounds: a.Rounds,
	}
	if a.Fault != nil {
		asked.Decision, asked.Fault = "", a.Fault.Error()
	}
	asked.SetExchanges(a.Exchanges, false)
	return asked
}

// claimEntry is a record about a claim.
func claimEntry(uid string, asked ...record.Evaluation) record.Entry {
	return record.Entry{
		Time: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), Reason: "KeptByPolicy", Action: record.DropReferences, Evaluations: asked,
		Object: record.Object{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: types.UID(uid)},
	}
}

// saved is a file with what the endpoint prints of these records.
func saved(t *testing.T, query string, entries ...record.Entry) string {
	t.Helper()
	s := record.NewStore(record.Limits{MaxEntries: 64})
	for _, e := range entries {
		s.Add(e)
	}
	handlers := debug.Handlers(debug.Source{ReadAccess: debug.AllowAll, Records: s.Entries})
	w := httptest.NewRecorder()
	handlers["/debug/gc/records"].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/gc/records"+query, nil))
	return writeFile(t, "records.json", w.Body.String())
}

func TestReplay_SameModule_SameVerdicts(t *testing.T) {
	module := writeFile(t, "policy.rego", readingRego)
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", module)))
	out, err := execute(t, "replay", file, "--module", module)
	if err != nil {
		t.Fatal(err, out)
	}
	containsAll(t, out, "PersistentVolumeClaim shop/data: collect at 2026-01-02T12:00:00Z, by ClusterGCPolicy keep\n", "the module is the same as recorded",
		"round 1: same verdict, Act; same fuel, ", "round 2: same verdict, Orphan; same fuel, ")
}

// One item alone is a record, and so is a list of them.
func TestReplay_ReadsPartsOfResponses(t *testing.T) {
	module := writeFile(t, "policy.rego", readingRego)
	text, err := os.ReadFile(saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", module))))
	if err != nil {
		t.Fatal(err)
	}
	list := strings.TrimSuffix(strings.TrimSpace(strings.SplitN(string(text), `"items":`, 2)[1]), "}")
	item := strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(list), "[")), "]")
	for name, text := range map[string]string{"a list": list, "an item": item} {
		if out, err := execute(t, "replay", writeFile(t, "r.json", text), "--module", filepath.Dir(module)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestReplay_ChangedModule_ShowsDifferences(t *testing.T) {
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", writeFile(t, "policy.rego", readingRego))))
	newer := strings.Replace(readingRego, `"decision": "Orphan", "reason"`, `"decision": "Delete", "propagation": "Orphan", "reason"`, 1)
	out, err := execute(t, "replay", file, "--module", writeFile(t, "policy.rego", newer))
	if err == nil || exitCode(err) == exit.CodeUsage {
		t.Fatalf("%v\n%s", err, out)
	}
	containsAll(t, err.Error(), "1 of 2 rounds differ from the record")
	containsAll(t, out, "the module is different: recorded sha256 ", "round 1: same verdict, Act; ", "round 2: DIFFERENT VERDICT; ",
		"  decision: recorded \"Orphan\", now \"Delete\"\n  propagation: recorded none, now \"Orphan\"\n")
	if strings.Contains(out, "reason:") {
		t.Errorf("it shows what is the same:\n%s", out)
	}
}

// Another module that says the same is what one hopes for: its fuel is shown, and
// is no difference.
func TestReplay_OtherModuleWithSameVerdicts_Passes(t *testing.T) {
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", writeFile(t, "policy.rego", readingRego))))
	slower := readingRego + "\nslow contains x if some x in numbers.range(1, 50)\n"
	slower = strings.Replace(slower, "if input.results.config\n", "if { input.results.config; count(slow) == 50 }\n", 1)
	out, err := execute(t, "replay", file, "--module", writeFile(t, "policy.rego", slower))
	if err != nil {
		t.Fatal(err, out)
	}
	containsAll(t, out, "the module is different", "round 2: same verdict, Orphan; fuel: recorded ", ", now ")
}

func TestReplay_MarksRoundsAfterDivergence(t *testing.T) {
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", writeFile(t, "policy.rego", readingRego))))
	other := strings.Replace(readingRego, `"name": "config"}`, `"name": "settings"}`, 1)
	out, err := execute(t, "replay", file, "--module", writeFile(t, "policy.rego", other))
	if err == nil {
		t.Fatal("nothing is different")
	}
	containsAll(t, out, `intents[0].get.name: recorded "config", now "settings"`, "round 2: same verdict, Orphan; ", "with the state and results of the recorded verdicts")
}

// A fault is an answer, too; what the clock broke off is none.
func TestReplay_OfFaults(t *testing.T) {
	module := writeFile(t, "policy.rego", "package gleaner\n\ncollect := {\"decision\": \"Perhaps\"}\n")
	asked := consulted(t, "keep", module)
	late := asked
	late.Exchanges = append([]policies.Exchange{}, asked.Exchanges...)
	late.Exchanges[0].Fault, late.Exchanges[0].FaultKind = "it took longer than 2s", policies.FaultTimedOut
	file := saved(t, "?exchanges=true", claimEntry("claim", asked), claimEntry("late", late))
	out, err := execute(t, "replay", file, "--module", module, "--uid", "claim")
	if err != nil {
		t.Fatal(err, out)
	}
	containsAll(t, out, "round 1: same verdict, a fault: ", "Perhaps")
	out, err = execute(t, "replay", file, "--module", writeFile(t, "p.rego", readingRego), "--uid", "claim")
	if err == nil {
		t.Fatal("nothing is different")
	}
	containsAll(t, out, "  fault: recorded \"", ", now none\n", "decision: recorded none, now \"Act\"")
	if out, err = execute(t, "replay", file, "--module", module, "--index", "1"); err != nil {
		t.Fatal(err, out)
	}
	containsAll(t, out, "not comparable, because the recorded evaluation was aborted: it took longer than 2s; now a fault: ")
}

func TestReplay_SeveralRecords_RequireSelection(t *testing.T) {
	module := writeFile(t, "policy.rego", readingRego)
	first, second := consulted(t, "keep", module), consulted(t, "other", module)
	fixed := record.Evaluation{Policy: "ClusterGCPolicy fixed", Decision: "Abstain", Rounds: 1}
	dropped := claimEntry("old", first).WithoutExchanges()
	dropped.ExchangesDropped = true
	file := saved(t, "?exchanges=true", claimEntry("one", fixed, first, second), claimEntry("two", first), dropped)
	_, err := execute(t, "replay", file, "--module", module)
	wantUsageError(t, err, "select one with --index, --uid or --policy", "--index=1  2026-01-02T12:00:00Z  PersistentVolumeClaim shop/data (uid two), ClusterGCPolicy keep")
	_, err = execute(t, "replay", file, "--module", module, "--uid", "one")
	wantUsageError(t, err, "several policies were evaluated: select one with --policy", "ClusterGCPolicy keep", "ClusterGCPolicy other")
	for name, args := range map[string][]string{
		"by index":           {"--index", "1"},
		"by UID":             {"--uid", "two"},
		"by UID and policy":  {"--uid", "one", "--policy", "other"},
		"by the whole name":  {"--policy", "ClusterGCPolicy other"},
		"all that there are": {"--all"},
	} {
		out, err := execute(t, append([]string{"replay", file, "--module", module}, args...)...)
		if want := map[bool]int{true: 3, false: 1}[args[0] == "--all"]; err != nil || strings.Count(out, "shop/data: collect") != want {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestReplay_NotReplayable_ExplainsWhy(t *testing.T) {
	module := writeFile(t, "policy.rego", readingRego)
	asked := consulted(t, "keep", module)
	with := func(change func(*record.Entry)) record.Entry {
		e := claimEntry("claim", asked)
		change(&e)
		return e
	}
	secret := with(func(e *record.Entry) { e.Evaluations = []record.Evaluation{asked}; e.Evaluations[0].Replayable = false })
	finalizer := with(func(e *record.Entry) {
		e.Evaluations = []record.Evaluation{asked}
		e.Evaluations[0].Replayable, e.Evaluations[0].Policy = false, "ClusterFinalizer bucket"
	})
	for claim, c := range map[string]struct {
		args []string
		says []string
	}{
		"no exchanges": {[]string{saved(t, "", claimEntry("claim", asked))}, []string{"does not include requests and verdicts", "?exchanges=true&uid=claim"}},
		"dropped": {[]string{saved(t, "?exchanges=true", with(func(e *record.Entry) { *e = e.WithoutExchanges(); e.ExchangesDropped = true }))},
			[]string{"evicted for newer records"}},
		"hidden": {[]string{saved(t, "?exchanges=true", with(func(e *record.Entry) { *e = e.WithoutExchanges(); e.ExchangesWithheld = true }))},
			[]string{"objects that the client is not allowed to get"}},
		"never asked": {[]string{saved(t, "", with(func(e *record.Entry) {
			e.Evaluations = []record.Evaluation{{Policy: "ClusterGCPolicy keep", Module: "m", Fault: "it is not ready: fetching"}}
		}))}, []string{"was not evaluated", "it is not ready: fetching"}},
		"a Secret of a policy":     {[]string{saved(t, "?exchanges=true", secret)}, []string{"not replayable", "write a case for gleaner test by hand"}},
		"a Secret of a finalizer":  {[]string{saved(t, "?exchanges=true", finalizer)}, []string{"not replayable", "set recordBodies: true in the Finalizer"}},
		"all of them":              {[]string{saved(t, "?exchanges=true", secret), "--all"}, []string{"none of the records can be replayed"}},
		"fixed verdicts":           {[]string{saved(t, "", claimEntry("a", record.Evaluation{Policy: "ClusterGCPolicy a", Rounds: 1}))}, []string{"none of the 1 record", "fixed verdicts"}},
		"another policy":           {[]string{saved(t, "?exchanges=true", claimEntry("a", asked)), "--policy", "keeper"}, []string{"--policy=keeper", `--policy="ClusterGCPolicy keep"`}},
		"beyond the last":          {[]string{saved(t, "?exchanges=true", claimEntry("a", asked)), "--index", "1"}, []string{"--index=1: out of range: there are 1 record"}},
		"an empty list":            {[]string{saved(t, "")}, []string{"no records found"}},
		"something else":           {[]string{writeFile(t, "a.json", `{"a": 1}`)}, []string{"a.json: no records found"}},
		"no JSON":                  {[]string{writeFile(t, "a.json", `a: 1`)}, []string{"read records", "a.json"}},
		"no file":                  {[]string{"nowhere.json"}, []string{"read records", "nowhere.json"}},
		"two files":                {[]string{"a", "b"}, []string{"accepts one file with records"}},
		"a module that is missing": {[]string{saved(t, "?exchanges=true", claimEntry("a", asked)), "--module", "nowhere.rego"}, []string{"nowhere.rego"}},
		"no fuel":                  {[]string{"a.json", "--fuel", "0"}, []string{"--fuel=0"}},
	} {
		t.Run(claim, func(t *testing.T) {
			args := append([]string{"replay"}, c.args...)
			if claim != "a module that is missing" {
				args = append(args, "--module", module)
			}
			_, err := execute(t, args...)
			wantUsageError(t, err, c.says...)
		})
	}
	_, err := execute(t, "replay", "a.json")
	wantUsageError(t, err, "set --module")
}

// The web UI shows this text.
func TestReplay_Text(t *testing.T) {
	module := writeFile(t, "policy.rego", readingRego)
	entries, err := records.Read(strings.NewReader(""), saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", module))))
	if err != nil {
		t.Fatal(err)
	}
	text, err := replay.Text(t.Context(), entries[0], module)
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, text, "the module is the same as recorded", "round 2: same verdict, Orphan", "The result is the recorded one.")
	newer := writeFile(t, "newer.rego", strings.Replace(readingRego, `"decision": "Orphan"`, `"decision": "Delete", "propagation": "Orphan"`, 1))
	if text, err = replay.Text(t.Context(), entries[0], newer); err != nil {
		t.Fatal(err)
	}
	containsAll(t, text, "round 2: DIFFERENT VERDICT", "1 of 2 rounds differ from the record.")
	if _, err := replay.Text(t.Context(), entries[0], writeFile(t, "broken.rego", "package")); err == nil {
		t.Error("a broken module is replayed")
	}
	cases, err := test.CasesOf(entries[0])
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, string(cases), "module: policy.rego", "round 2")
}

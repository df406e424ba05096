package main

import (
	"context"
	"errors"
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
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
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

// Ask makes an Asker of a module, as the operator does.
func (m askedModule) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	a, err := m.ask(ctx, r)
	return policies.Answer{Verdict: a.verdict, Fuel: a.usage.Fuel}, err
}

// consulted has the module decide about a claim, as the operator would, and
// returns what the records say of it.
func consulted(t *testing.T, policy, file string) record.Asked {
	t.Helper()
	m, err := loadModule(t.Context(), sandbox.Limits{}, []string{file})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	digests, err := digestsOf(m, []string{file})
	if err != nil {
		t.Fatal(err)
	}
	claims := catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"}},
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"}},
	}}}, catalog.Settings{})
	p := &policies.Policy{
		Name: policy, Generation: 3, Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{"persistentvolumeclaims"}}},
		Hooks: m.facts.Hooks, Asker: askedModule{m, policy}, Module: "ClusterPolicyModule " + policy, Digest: digests[0],
		Needs: policies.NeedsReference, Enforce: true, Settings: []byte(`{"keep": "<all>"}`),
	}
	c := consult.Consultant{
		Policies: func() *policies.Set { return policies.NewSet([]*policies.Policy{p}) },
		Default:  builtin.Policy{}, Catalog: func() *catalog.Catalog { return claims },
		Reader:  consult.NewLive(&rest.Config{Host: "https://127.0.0.1:1"}),
		Intents: intents.New(intents.Options{Catalog: func() *catalog.Catalog { return claims }}), // it names no account, and so is let read nothing
		Now:     func() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) },
		ByKind:  func(graph.ID) []graph.KindCount { return nil },
	}
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db"}
	opinion, err := c.Ask(t.Context(), consult.Question{Hook: hostabi.HookCollect, Requested: hostabi.RequestedUnspecified, Facts: decide.Facts{
		Object: graph.Object{UID: "claim", ResourceVersion: "7", Kind: schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"},
			Namespace: "shop", Name: "data", Owners: []metav1.OwnerReference{owner}},
		Owners: []decide.Owner{{Reference: owner, Standing: decide.Absent}},
	}})
	if err != nil || len(opinion.Asked) != 1 {
		t.Fatalf("the opinion is %+v, %v", opinion, err)
	}
	a := opinion.Asked[0]
	asked := record.Asked{
		Policy: p.String(), Generation: p.Generation, Mode: "Enforce", Module: p.Module, Digest: p.Digest,
		Decision: string(a.Verdict.Decision), Fuel: a.Fuel, Rounds: a.Rounds,
	}
	if a.Fault != nil {
		asked.Decision, asked.Fault = "", a.Fault.Error()
	}
	asked.Transcribe(a.Exchanges, false)
	return asked
}

// claimEntry is a record about a claim.
func claimEntry(uid string, asked ...record.Asked) record.Entry {
	return record.Entry{
		Time: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), Reason: "KeptByPolicy", Action: record.DropReferences, Asked: asked,
		Object: record.Object{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: types.UID(uid)},
	}
}

// saved is a file with what the endpoint prints of these records.
func saved(t *testing.T, query string, entries ...record.Entry) string {
	t.Helper()
	s := record.NewStore(record.Bounds{Entries: 64})
	for _, e := range entries {
		s.Add(e)
	}
	handlers := debug.Handlers(debug.Source{Sight: debug.Everything, Records: s.Entries})
	w := httptest.NewRecorder()
	handlers["/debug/gc/records"].ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/gc/records"+query, nil))
	return written(t, "records.json", w.Body.String())
}

func TestReplay_OfTheSameModuleComesOutTheSame(t *testing.T) {
	module := written(t, "policy.rego", readingRego)
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", module)))
	out, err := execute(t, "replay", file, "--module", module)
	if err != nil {
		t.Fatal(err, out)
	}
	says(t, out, "PersistentVolumeClaim shop/data: collect at 2026-01-02T12:00:00Z, by ClusterGCPolicy keep\n", "the module is the recorded one",
		"round 1: same verdict, Act; same fuel, ", "round 2: same verdict, Orphan; same fuel, ")
}

// One item alone is a record, and so is a list of them.
func TestReplay_ReadsWhatPeopleCutOut(t *testing.T) {
	module := written(t, "policy.rego", readingRego)
	text, err := os.ReadFile(saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", module))))
	if err != nil {
		t.Fatal(err)
	}
	list := strings.TrimSuffix(strings.TrimSpace(strings.SplitN(string(text), `"items":`, 2)[1]), "}")
	item := strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(list), "[")), "]")
	for name, text := range map[string]string{"a list": list, "an item": item} {
		if out, err := execute(t, "replay", written(t, "r.json", text), "--module", filepath.Dir(module)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestReplay_OfANewerModuleSaysWhatItWouldHaveSaid(t *testing.T) {
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", written(t, "policy.rego", readingRego))))
	newer := strings.Replace(readingRego, `"decision": "Orphan", "reason"`, `"decision": "Delete", "propagation": "Orphan", "reason"`, 1)
	out, err := execute(t, "replay", file, "--module", written(t, "policy.rego", newer))
	if err == nil || errors.As(err, &usageError{}) {
		t.Fatalf("%v\n%s", err, out)
	}
	says(t, err.Error(), "1 of 2 rounds came out otherwise than recorded")
	says(t, out, "the module is another one: sha256 ", "round 1: same verdict, Act; ", "round 2: ANOTHER VERDICT; ",
		"  decision: \"Orphan\" then, \"Delete\" now\n  propagation: none then, \"Orphan\" now\n")
	if strings.Contains(out, "reason:") {
		t.Errorf("it shows what is the same:\n%s", out)
	}
}

// Another module that says the same is what one hopes for: its fuel is shown, and
// is no difference.
func TestReplay_OfAnotherModuleThatSaysTheSameIsGood(t *testing.T) {
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", written(t, "policy.rego", readingRego))))
	slower := readingRego + "\nslow contains x if some x in numbers.range(1, 50)\n"
	slower = strings.Replace(slower, "if input.results.config\n", "if { input.results.config; count(slow) == 50 }\n", 1)
	out, err := execute(t, "replay", file, "--module", written(t, "policy.rego", slower))
	if err != nil {
		t.Fatal(err, out)
	}
	says(t, out, "the module is another one", "round 2: same verdict, Orphan; fuel ", " then, ")
}

func TestReplay_SaysWhenLaterRoundsAreAboutOtherAnswers(t *testing.T) {
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", written(t, "policy.rego", readingRego))))
	other := strings.Replace(readingRego, `"name": "config"}`, `"name": "settings"}`, 1)
	out, err := execute(t, "replay", file, "--module", written(t, "policy.rego", other))
	if err == nil {
		t.Fatal("nothing is different")
	}
	says(t, out, `intents[0].get.name: "config" then, "settings" now`, "round 2: same verdict, Orphan; ", "that the recorded answers led to")
}

// A fault is an answer, too; what the clock broke off is none.
func TestReplay_OfFaults(t *testing.T) {
	module := written(t, "policy.rego", "package gleaner\n\ncollect := {\"decision\": \"Perhaps\"}\n")
	asked := consulted(t, "keep", module)
	late := asked
	late.Exchanges = append([]policies.Exchange{}, asked.Exchanges...)
	late.Exchanges[0].Fault, late.Exchanges[0].FaultKind = "it took longer than 2s", policies.FaultTimedOut
	file := saved(t, "?exchanges=true", claimEntry("claim", asked), claimEntry("late", late))
	out, err := execute(t, "replay", file, "--module", module, "--uid", "claim")
	if err != nil {
		t.Fatal(err, out)
	}
	says(t, out, "round 1: same verdict, a fault: ", "Perhaps")
	out, err = execute(t, "replay", file, "--module", written(t, "p.rego", readingRego), "--uid", "claim")
	if err == nil {
		t.Fatal("nothing is different")
	}
	says(t, out, "  fault: \"", " then, none now\n", "decision: none then, \"Act\" now")
	if out, err = execute(t, "replay", file, "--module", module, "--index", "1"); err != nil {
		t.Fatal(err, out)
	}
	says(t, out, "nothing to compare, since it was broken off then: it took longer than 2s; now a fault: ")
}

func TestReplay_OfSeveralRecordsIsToldWhichOrAll(t *testing.T) {
	module := written(t, "policy.rego", readingRego)
	first, second := consulted(t, "keep", module), consulted(t, "other", module)
	fixed := record.Asked{Policy: "ClusterGCPolicy fixed", Decision: "Abstain", Rounds: 1}
	dropped := claimEntry("old", first).WithoutExchanges()
	dropped.ExchangesDropped = true
	file := saved(t, "?exchanges=true", claimEntry("one", fixed, first, second), claimEntry("two", first), dropped)
	_, err := execute(t, "replay", file, "--module", module)
	refused(t, err, "choose one with --index, --uid or --policy", "--index=1  2026-01-02T12:00:00Z  PersistentVolumeClaim shop/data (uid two), asked by ClusterGCPolicy keep")
	_, err = execute(t, "replay", file, "--module", module, "--uid", "one")
	refused(t, err, "several policies asked their modules: choose one with --policy", "ClusterGCPolicy keep", "ClusterGCPolicy other")
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

func TestReplay_ThatCannotBeSaysWhyAndWhatToDo(t *testing.T) {
	module := written(t, "policy.rego", readingRego)
	asked := consulted(t, "keep", module)
	with := func(change func(*record.Entry)) record.Entry {
		e := claimEntry("claim", asked)
		change(&e)
		return e
	}
	secret := with(func(e *record.Entry) { e.Asked = []record.Asked{asked}; e.Asked[0].Replayable = false })
	finalizer := with(func(e *record.Entry) {
		e.Asked = []record.Asked{asked}
		e.Asked[0].Replayable, e.Asked[0].Policy = false, "ClusterFinalizer bucket"
	})
	for claim, c := range map[string]struct {
		args []string
		says []string
	}{
		"no exchanges": {[]string{saved(t, "", claimEntry("claim", asked))}, []string{"is not in the record", "?exchanges=true&uid=claim"}},
		"dropped": {[]string{saved(t, "?exchanges=true", with(func(e *record.Entry) { *e = e.WithoutExchanges(); e.ExchangesDropped = true }))},
			[]string{"had to make room for newer records"}},
		"hidden": {[]string{saved(t, "?exchanges=true", with(func(e *record.Entry) { *e = e.WithoutExchanges(); e.ExchangesHidden = true }))},
			[]string{"names objects that the client may not get"}},
		"never asked": {[]string{saved(t, "", with(func(e *record.Entry) {
			e.Asked = []record.Asked{{Policy: "ClusterGCPolicy keep", Module: "m", Fault: "it is not ready: fetching"}}
		}))}, []string{"was not asked", "it is not ready: fetching"}},
		"a Secret of a policy":     {[]string{saved(t, "?exchanges=true", secret)}, []string{"not replayable", "write a case for gleaner test by hand"}},
		"a Secret of a finalizer":  {[]string{saved(t, "?exchanges=true", finalizer)}, []string{"not replayable", "set recordBodies: true in the Finalizer"}},
		"all of them":              {[]string{saved(t, "?exchanges=true", secret), "--all"}, []string{"none of the records can be replayed"}},
		"fixed verdicts":           {[]string{saved(t, "", claimEntry("a", record.Asked{Policy: "ClusterGCPolicy a", Rounds: 1}))}, []string{"none of these 1 record", "fixed verdicts"}},
		"another policy":           {[]string{saved(t, "?exchanges=true", claimEntry("a", asked)), "--policy", "keeper"}, []string{"--policy=keeper", `--policy="ClusterGCPolicy keep"`}},
		"beyond the last":          {[]string{saved(t, "?exchanges=true", claimEntry("a", asked)), "--index", "1"}, []string{"--index=1: there are 1 record"}},
		"an empty list":            {[]string{saved(t, "")}, []string{"it holds no record"}},
		"something else":           {[]string{written(t, "a.json", `{"a": 1}`)}, []string{"a.json: it holds no record"}},
		"no JSON":                  {[]string{written(t, "a.json", `a: 1`)}, []string{"read records", "a.json"}},
		"no file":                  {[]string{"nowhere.json"}, []string{"read records", "nowhere.json"}},
		"two files":                {[]string{"a", "b"}, []string{"needs one file with records"}},
		"a module that is missing": {[]string{saved(t, "?exchanges=true", claimEntry("a", asked)), "--module", "nowhere.rego"}, []string{"nowhere.rego"}},
		"no fuel":                  {[]string{"a.json", "--fuel", "0"}, []string{"--fuel=0"}},
	} {
		t.Run(claim, func(t *testing.T) {
			args := append([]string{"replay"}, c.args...)
			if claim != "a module that is missing" {
				args = append(args, "--module", module)
			}
			_, err := execute(t, args...)
			refused(t, err, c.says...)
		})
	}
	_, err := execute(t, "replay", "a.json")
	refused(t, err, "name the module with --module")
}

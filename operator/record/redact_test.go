package record_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

const secretDocument = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"ns","uid":"u","resourceVersion":"7",
	"labels":{"team":"shop"},"annotations":{"note":"to see","kubectl.kubernetes.io/last-applied-configuration":"hidden-1","tool/original":" {\"data\":\"hidden-2\"}"}},
	"data":{"password":"hidden-3","same":"hidden-3","empty":""},"stringData":{"user":"hidden-4"},"type":"Opaque"}`

// exchangesWithSecrets returns a transcript with a secret in every place that is redacted.
func exchangesWithSecrets(t *testing.T) []policies.Exchange {
	t.Helper()
	secret := object(t, secretDocument)
	plain := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"c","resourceVersion":"1"},"data":{"a":"to see"}}`)
	target := hostabi.Target{APIVersion: "v1", Kind: "Secret", Namespace: "ns", Name: "s"}
	intents := []hostabi.Intent{
		{ID: "http", HTTP: &hostabi.HTTPIntent{Method: "POST", URL: "https://a.example/b?token=hidden-5", Headers: map[string]string{"X-Key": "hidden-6"}, Body: "hidden-7"}},
		{ID: "create", Create: &hostabi.CreateIntent{Object: json.RawMessage(secretDocument)}},
		{ID: "patch", Patch: &hostabi.PatchIntent{Target: target, Type: hostabi.PatchMerge, Patch: json.RawMessage(`{"data":{"a":"hidden-8"}}`)}},
		{ID: "other", Create: &hostabi.CreateIntent{Object: plain.Body}},
		{ID: "get", Get: &hostabi.GetIntent{Target: target}},
	}
	results := map[string]hostabi.Result{
		"http":   {HTTP: &hostabi.HTTPResult{Status: 200, Headers: map[string]string{"Set-Cookie": "hidden-9"}, Body: "hidden-10"}},
		"binary": {HTTP: &hostabi.HTTPResult{Status: 200, BodyBase64: []byte("hidden-11\xff")}},
		"get":    {Object: &secret},
		"list":   {List: &hostabi.ListResult{Items: []hostabi.Object{secret, plain}}},
	}
	return []policies.Exchange{
		{Request: hostabi.Request{Hook: hostabi.HookFinalize, Object: plain, Round: 1}, Verdict: hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: intents}},
		{Request: hostabi.Request{Hook: hostabi.HookFinalize, Object: secret, Round: 2, Results: results}, Verdict: hostabi.Verdict{Decision: hostabi.DecisionDone, Reason: "to see"}},
	}
}

func marshal(t *testing.T, exchanges []policies.Exchange) string {
	t.Helper()
	text, err := json.Marshal(exchanges)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRedact_ReplacesAllSecrets(t *testing.T) {
	input := exchangesWithSecrets(t)
	before := marshal(t, input)
	redacted, replayable := record.Redact(input, false)
	text := marshal(t, redacted)
	if replayable {
		t.Error("it is marked as replayable")
	}
	if strings.Contains(text, "hidden") || strings.Contains(text, "aGlkZGVu") { // the second in base64
		t.Errorf("a secret is in %s", text)
	}
	for _, shown := range []string{"to see", "password", "X-Key", "Set-Cookie", "https://a.example/b?sha256:", `"team":"shop"`, "Opaque", "sha256:"} {
		if !strings.Contains(text, shown) {
			t.Errorf("%q is missing in %s", shown, text)
		}
	}
	if diff := cmp.Diff(before, marshal(t, input)); diff != "" {
		t.Errorf("the input is modified:\n%s", diff)
	}
	for _, o := range []hostabi.Object{redacted[1].Request.Object, *redacted[1].Request.Results["get"].Object} {
		if got := o.Metadata.Annotations["kubectl.kubernetes.io/last-applied-configuration"]; !strings.HasPrefix(got, "sha256:") {
			t.Errorf("the annotation, as a field, is %q", got)
		}
	}
}

// Equal values have equal hashes, which shows whether a value has changed.
func TestRedact_EqualSecretsHaveEqualHashes(t *testing.T) {
	redacted, _ := record.Redact(exchangesWithSecrets(t), false)
	var o struct{ Data map[string]string }
	if err := redacted[1].Request.Object.Decode(&o); err != nil {
		t.Fatal(err)
	}
	if o.Data["password"] != o.Data["same"] || len(o.Data["same"]) != len("sha256:")+64 || o.Data["empty"] != "" {
		t.Errorf("the data is %v", o.Data)
	}
}

func TestRedact_WithBodiesReturnsTheInput(t *testing.T) {
	input := exchangesWithSecrets(t)
	kept, replayable := record.Redact(input, true)
	if diff := cmp.Diff(input, kept); diff != "" || !replayable {
		t.Errorf("replayable %t:\n%s", replayable, diff)
	}
}

func TestRedact_WithoutSecretsReturnsTheInput(t *testing.T) {
	for name, exchanges := range map[string][]policies.Exchange{
		"nothing":           nil,
		"a ConfigMap":       about(object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","uid":"c","resourceVersion":"1"},"data":{"a":"b"}}`)),
		"another group":     about(object(t, `{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"c","uid":"c","resourceVersion":"1"},"data":{"a":"b"}}`)),
		"a Secret, unshown": about(hostabi.Object{APIVersion: "v1", Kind: "Secret", Metadata: hostabi.Metadata{Name: "s", UID: "u"}}),
	} {
		t.Run(name, func(t *testing.T) {
			got, replayable := record.Redact(exchanges, false)
			if diff := cmp.Diff(exchanges, got); diff != "" || !replayable {
				t.Errorf("replayable %t:\n%s", replayable, diff)
			}
		})
	}
}

// A Secret that cannot be parsed is redacted entirely.
func TestRedact_UnparsableSecretIsRedactedEntirely(t *testing.T) {
	for _, document := range []string{
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","uid":"u","resourceVersion":"1"},"data":"hidden"}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","uid":"u","resourceVersion":"1"},"data":{"a":{"b":"hidden"}}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","uid":"u","resourceVersion":"1"},"data":["hidden"]}`,
	} {
		redacted, replayable := record.Redact(about(object(t, document)), false)
		if text := marshal(t, redacted); strings.Contains(text, "hidden") || replayable {
			t.Errorf("shown, replayable %t: %s", replayable, text)
		}
	}
}

func TestIntentsOf(t *testing.T) {
	exchanges := exchangesWithSecrets(t)
	results := exchanges[1].Request.Results
	results["patch"] = hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorConflict, Message: "hidden"}}
	got := record.IntentsOf(exchanges[0].Verdict.Intents, results)
	secret := record.Object{APIVersion: "v1", Kind: "Secret", Namespace: "ns", Name: "s"}
	want := []record.Intent{
		{ID: "http", Type: hostabi.IntentHTTP, Summary: "POST https://a.example/b", Result: "200"},
		{ID: "create", Type: hostabi.IntentCreate, Summary: "create Secret ns/s", Object: secret},
		{ID: "patch", Type: hostabi.IntentPatch, Summary: "patch Secret ns/s", Object: secret, Result: "Conflict"},
		{ID: "other", Type: hostabi.IntentCreate, Summary: "create ConfigMap c", Object: record.Object{APIVersion: "v1", Kind: "ConfigMap", Name: "c"}},
		{ID: "get", Type: hostabi.IntentGet, Summary: "get Secret ns/s", Object: secret, Result: "Done"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEntry_StringOfAFinalizer(t *testing.T) {
	act := record.Entry{
		Object: objectNamed("child"), Reason: "FinalizerActed", Detail: "example.com/bucket", Action: record.None,
		Evaluations: []record.Evaluation{{Policy: "ClusterFinalizer bucket", Decision: "Act"}},
		Intents: []record.Intent{
			{ID: "a", Type: hostabi.IntentHTTP, Summary: "DELETE https://s3.example.com/b", Result: "204"},
			{ID: "b", Type: hostabi.IntentList, Summary: "list Pod in ns"},
		},
	}
	gone := act
	gone.Action, gone.Result, gone.Reason, gone.Intents, gone.Evaluations = record.RemoveFinalizer, "Done", "FinalizerDone", nil, nil
	for want, e := range map[string]record.Entry{
		"ConfigMap ns/child: kept by the finalizer example.com/bucket, FinalizerActed, ClusterFinalizer bucket: Act, " +
			"DELETE https://s3.example.com/b: 204, list Pod in ns": act,
		"ConfigMap ns/child: finalizer example.com/bucket removed, FinalizerDone": gone,
	} {
		if diff := cmp.Diff(want, e.String()); diff != "" {
			t.Error(diff)
		}
	}
	s := record.NewStore(record.Limits{MaxEntries: 4})
	s.Add(act)
	act.Intents = act.Intents[:1]
	if _, isNew := s.Add(act); !isNew {
		t.Error("other intents are not recorded")
	}
}

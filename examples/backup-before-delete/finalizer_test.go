package main

import (
	"encoding/json"
	"strings"
	"testing"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

const (
	intoConfigMaps = `{"namespace":"backups"}`
	byPut          = `{"url":"https://backup.example.com/m"}`

	settled = `{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"name":"orders","namespace":"shop","labels":{"app":"x"},
		"uid":"u-1","resourceVersion":"7","finalizers":["f"],"managedFields":[{}],"deletionTimestamp":"2026-01-02T12:00:00Z"},"status":{"x":1}}`
	manifest = `{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"labels":{"app":"x"},"name":"orders","namespace":"shop"}}`
)

// asked is a question about an object.
func asked(t *testing.T, settings, object string) gleaner.Request {
	t.Helper()
	r := gleanertest.Request(gleaner.Finalize)
	r.Policy.Settings = json.RawMessage(settings)
	if err := json.Unmarshal([]byte(object), &r.Object); err != nil {
		t.Fatal(err)
	}
	return r
}

func finalized(t *testing.T, r gleaner.Request, world func(gleaner.Intent) gleaner.Result) gleanertest.FinalizeResult {
	t.Helper()
	got, err := gleanertest.Finalize(finalizer, r, world)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTheManifestIsStoredAndReadBack(t *testing.T) {
	var w gleanertest.FakeCluster
	got := finalized(t, asked(t, intoConfigMaps, settled), w.Execute)
	if got.Verdict.Decision != gleaner.Done || got.Rounds != 3 {
		t.Errorf("got %+v in %d rounds", got.Verdict, got.Rounds)
	}
	objects := w.Objects()
	if len(objects) != 1 || objects[0].Metadata.Name != "configmap-u-1" || objects[0].Metadata.Namespace != "backups" || !has(objects[0], manifest) {
		t.Errorf("there is %+v", objects)
	}
	if again := finalized(t, asked(t, intoConfigMaps, settled), w.Execute); again.Verdict.Decision != gleaner.Done || len(w.Objects()) != 1 {
		t.Errorf("asked again: %+v", again.Verdict)
	}
}

func TestAnOldBackupIsRenewed(t *testing.T) {
	var w gleanertest.FakeCluster
	finalized(t, asked(t, intoConfigMaps, settled), w.Execute)
	changed := strings.Replace(settled, `"a":"1"`, `"a":"2"`, 1)
	patched := func(intent gleaner.Intent) gleaner.Result {
		if intent.Patch == nil {
			return w.Execute(intent)
		}
		var o gleaner.Object
		text := strings.Replace(string(intent.Patch.Patch), `"metadata":{`, `"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"backups","name":"`+intent.Patch.Name+`",`, 1)
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		w.Add(o)
		return gleaner.Result{Object: &o}
	}
	got := finalized(t, asked(t, intoConfigMaps, changed), patched)
	if got.Verdict.Decision != gleaner.Done || got.Rounds != 5 || !has(w.Objects()[0], strings.Replace(manifest, `"a":"1"`, `"a":"2"`, 1)) {
		t.Errorf("got %+v in %d rounds; there is %s", got.Verdict, got.Rounds, w.Objects()[0].Body)
	}
}

func TestWhatWasNotReadBackIsNotStored(t *testing.T) {
	lost := func(intent gleaner.Intent) gleaner.Result {
		if intent.Create != nil {
			return gleaner.Result{Object: &gleaner.Object{}}
		}
		return gleanertest.ErrorResult(gleaner.ErrorNotFound, "oh")
	}
	for claim, c := range map[string]struct {
		settings string
		world    func(gleaner.Intent) gleaner.Result
		want     gleaner.Decision
	}{
		"a ConfigMap that is not there":  {intoConfigMaps, lost, gleaner.Wait},
		"a server that keeps nothing":    {byPut, gleanertest.RespondWith(200, ""), gleaner.Wait},
		"a server that is down":          {byPut, gleanertest.RespondWith(503, ""), gleaner.Wait},
		"an address with nothing behind": {byPut, gleanertest.RespondWith(404, ""), gleaner.Fail},
		"a server that refuses":          {byPut, gleanertest.RespondWith(403, ""), gleaner.Fail},
		"a server that gives it back":    {byPut, gleanertest.RespondWith(200, manifest), gleaner.Done},
	} {
		t.Run(claim, func(t *testing.T) {
			if got := finalized(t, asked(t, c.settings, settled), c.world); got.Verdict.Decision != c.want {
				t.Errorf("got %+v, want %s", got.Verdict, c.want)
			}
		})
	}
}

func TestASecretIsStoredNowhere(t *testing.T) {
	secret := strings.Replace(settled, `"kind":"ConfigMap"`, `"kind":"Secret"`, 1)
	for _, settings := range []string{intoConfigMaps, byPut} {
		got := finalized(t, asked(t, settings, secret), gleanertest.RespondWith(200, ""))
		if got.Verdict.Decision != gleaner.Fail || len(got.Intents) != 0 {
			t.Errorf("got %+v, %v", got.Verdict, got.Intents)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for settings, want := range map[string]gleaner.Decision{
		intoConfigMaps: gleaner.Valid,
		byPut:          gleaner.Valid,
		`{}`:           gleaner.Invalid,
		`{"namespace":"backups","url":"https://x"}`: gleaner.Invalid,
		`{"url":"https://x/"}`:                      gleaner.Invalid,
		`{"url":"backup.example.com"}`:              gleaner.Invalid,
		`{"folder":"x"}`:                            gleaner.Invalid,
	} {
		r := gleanertest.Request(gleaner.Validate)
		r.Policy.Settings = json.RawMessage(settings)
		got, err := gleanertest.Call(validate, r)
		if err != nil || got.Verdict.Decision != want {
			t.Errorf("%s: got %+v, %v; want %s", settings, got.Verdict, err, want)
		}
	}
}

package guest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const allFields = `{
  "apiVersion": "abi.gleaner.dev/v1", "hook": "finalize", "policy": {"name": "p\u00f6", "settings": {"a": [1, "}"]}},
  "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"k\"ey": "v,"}, "managedFields": [{"x": {"f:a": {}}}], "uid": "u"}, "spec": {"text": "a \\ \"}{][ b"}},
  "owners": [{"reference": {"name": "o"}, "status": "Absent"}], "dependents": {"count": 1, "byKind": [{"kind": "Pod", "count": 1}]},
  "time": "2026-01-02T12:00:00Z", "deadline": "2026-01-02T13:00:00Z", "namespaceTerminating": true, "attempt": 2, "round": 3,
  "state": {"done": ["a"]}, "withheld": ["object"], "unheard": {"of": null},
  "results": {
    "get": {"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"a": "\u2028"}}},
    "list": {"list": {"items": [{"kind": "Pod", "metadata": {"uid": "1"}}, {}, {"kind": "Pod" , "spec" : [ ] }], "continue": "tok\"en"}},
    "empty": {"list": {"items": []}}, "event": {},
    "http": {"http": {"status": 503, "headers": {"Retry-After": "7"}, "body": "<a b=\"c\">\n\u00e4</a>", "truncated": true}},
    "binary": {"http": {"status": 200, "bodyBase64": "AAEC"}},
    "error": {"error": {"reason": "NotFound", "message": "no \"a\""}}
  }
}`

func TestDecode_EqualsEncodingJSON(t *testing.T) {
	documents := []string{allFields, `{}`, `{"object": {}, "results": {}}`, ` { "round" : 1 } `}
	for _, hook := range hostabi.Hooks() {
		data, err := hostabi.MarshalRequest(hostabi.Request{Hook: hook})
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(data))
	}
	for _, document := range documents {
		var want hostabi.Request
		if err := json.Unmarshal([]byte(document), &want); err != nil {
			t.Fatal(err)
		}
		got, ok := decodeFast([]byte(document))
		if !ok {
			t.Errorf("it is not read quickly: %s", document)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("of %s\ngot  %+v\nwant %+v", document, got, want)
		}
	}
}

func TestDecode_FallsBackToEncodingJSON(t *testing.T) {
	for _, document := range []string{`{"results": null}`, `{"object": null, "round": 3}`, `{"results": {"a": null}}`, `{"results": {"a": {"list": null}}}`} {
		var want hostabi.Request
		if err := json.Unmarshal([]byte(document), &want); err != nil {
			t.Fatal(err)
		}
		if got, err := decode([]byte(document)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("of %s: %+v, %v", document, got, err)
		}
	}
}

func TestDecode_RejectsTruncated(t *testing.T) {
	for length := range allFields {
		if _, err := decode([]byte(allFields[:length])); err == nil {
			t.Fatalf("the first %d bytes are a request", length)
		}
	}
	for _, document := range []string{``, `[]`, `{"object": 1}`, `{"results": {"a": {"list": {"items": {}}}}}`, `{"object": {"metadata": 1}}`, strings.Repeat(`{"a":`, 9)} {
		if _, err := decode([]byte(document)); err == nil {
			t.Errorf("%s is a request", document)
		}
	}
}

// FuzzDecode sees that any text in any place is read as encoding/json reads it,
// and that nothing at all panics: a module has no recover.
func FuzzDecode(f *testing.F) {
	f.Add("name", "a \\ \"}{][ b", allFields)
	f.Add("\u2028", "<&>\n", `{"object":`)
	f.Fuzz(func(t *testing.T, name, text, document string) {
		_, _ = decode([]byte(document))
		body, err := json.Marshal(map[string]any{"kind": name, "metadata": map[string]any{"name": name, "managedFields": text}, "data": text})
		if err != nil {
			t.Fatal(err)
		}
		o := hostabi.Object{Body: body}
		data, err := hostabi.MarshalRequest(hostabi.Request{Object: o, State: body, Results: map[string]hostabi.Result{name: {
			Object: &o, List: &hostabi.ListResult{Items: []hostabi.Object{o}, Continue: text}, HTTP: &hostabi.HTTPResult{Body: text},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		var want hostabi.Request
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if got, ok := decodeFast(data); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("of %s\ngot  %+v\nwant %+v", data, got, want)
		}
	})
}

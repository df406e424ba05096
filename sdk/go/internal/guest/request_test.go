package guest

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

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
		if got, err := decode([]byte(document)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("of %s\ngot  %+v, %v\nwant %+v", document, got, err, want)
		}
	}
}

func TestDecode_NullIsTheZeroValue(t *testing.T) {
	for _, document := range []string{
		`{"results": null}`, `{"object": null, "round": 3}`, `{"results": {"a": null}}`, `{"results": {"a": {"list": null}}}`,
		`{"round": null, "hook": null, "namespaceTerminating": null, "time": null, "deadline": null, "owners": null}`,
	} {
		var want hostabi.Request
		if err := json.Unmarshal([]byte(document), &want); err != nil {
			t.Fatal(err)
		}
		if got, err := decode([]byte(document)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("of %s: %+v, %v", document, got, err)
		}
	}
}

// fill sets all fields below v, so that a field which is added later and not decoded is found.
func fill(random *rand.Rand, v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(random.Int64N(1<<33), random.Int64N(1e9)).UTC()))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"a":["\u00e4",1,null]}`))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"a", "\"b\\", "\u2028<&>", "\t\x01ü\U0001F600", "new\nline"}[random.IntN(5)])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(random.Int64N(1<<40) - 1<<39)
	case reflect.Uint8:
		v.SetUint(random.Uint64N(256))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(random, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(random, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(random, key)
			fill(random, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type() != reflect.TypeFor[hostabi.Object]() || v.Type().Field(i).Name != "Body" {
				fill(random, v.Field(i))
			}
		}
	default:
		panic("no value for a " + v.Type().String())
	}
}

func TestDecode_OfEveryField(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var request, want hostabi.Request
		fill(random, reflect.ValueOf(&request).Elem())
		data, err := hostabi.MarshalRequest(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if got, err := decode(data); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("of %s\ngot  %+v, %v\nwant %+v", data, got, err, want)
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
		if got, err := decode(data); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("of %s\ngot  %+v, %v\nwant %+v", data, got, err, want)
		}
	})
}

package hostabi_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// filler sets all fields of a value, so that a field which is added later and not encoded
// is found. What it sets has JSON.
type filler struct {
	*rand.Rand
	texts []string
}

func (f filler) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(f.Int64N(1<<33), f.Int64N(1e9)).UTC()))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"a":["\u00e4<",1,null]}`))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.texts[f.IntN(len(f.texts))])
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt((f.Int64N(1<<40) - 1<<39) * f.Int64N(2))
	case reflect.Uint8:
		v.SetUint(f.Uint64N(256))
	case reflect.Pointer:
		if f.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), f.IntN(3), 3))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type() != reflect.TypeFor[hostabi.Object]() || v.Type().Field(i).Name != "Body" || f.IntN(2) == 0 {
				f.fill(v.Field(i))
			}
		}
	default:
		panic("no value for a " + v.Type().String())
	}
}

// viaReflection encodes a value by its type's fields.
func viaReflection(t *testing.T, value any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(b.String()) // Object.MarshalJSON escapes them
	return []byte(strings.TrimSuffix(text, "\n"))
}

func TestMarshal_EqualsEncodingJSON(t *testing.T) {
	f := filler{rand.New(rand.NewPCG(1, 2)), []string{"", "a", "\"b\\", "<&>\u2028", "\t\x01ü\U0001F600\x7f", "new\nline", "\xff\xfe", "\b\f\r\x00"}}
	for range 2000 {
		var request hostabi.Request
		f.fill(reflect.ValueOf(&request).Elem())
		got, err := hostabi.MarshalRequest(request)
		if err != nil {
			t.Fatal(err)
		}
		request.APIVersion = hostabi.Version
		if want := viaReflection(t, request); !bytes.Equal(got, want) {
			t.Fatalf("request:\ngot  %s\nwant %s", got, want)
		}
		var verdict hostabi.Verdict
		f.fill(reflect.ValueOf(&verdict).Elem())
		for i := range verdict.Intents { // a document is required
			if c := verdict.Intents[i].Create; c != nil && c.Object == nil {
				c.Object = json.RawMessage("{}")
			}
		}
		if got, err = hostabi.MarshalVerdict(verdict); err != nil {
			t.Fatal(err)
		}
		if want := viaReflection(t, verdict); !bytes.Equal(got, want) {
			t.Fatalf("verdict:\ngot  %s\nwant %s", got, want)
		}
	}
}

func TestMarshalRequest_RejectsInvalidJSON(t *testing.T) {
	for claim, r := range map[string]hostabi.Request{
		"settings": {Policy: hostabi.Policy{Settings: json.RawMessage("{")}},
		"object":   {Object: hostabi.Object{Body: json.RawMessage("x")}},
		"state":    {State: json.RawMessage(`{}{}`)},
		"time":     {Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if data, err := hostabi.MarshalRequest(r); err == nil {
			t.Errorf("%s: wrote %s", claim, data)
		}
	}
}

func BenchmarkMarshalRequest(b *testing.B) {
	f := filler{rand.New(rand.NewPCG(1, 2)), []string{"a", "some-name", "some text"}}
	var request hostabi.Request
	f.fill(reflect.ValueOf(&request).Elem())
	b.Run("encoder", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := hostabi.MarshalRequest(request); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := json.Marshal(request); err != nil {
				b.Fatal(err)
			}
		}
	})
}

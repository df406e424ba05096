package settings_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/settings"
)

const sizes = `{"type": "object", "required": ["size"], "additionalProperties": false, "properties": {
  "size": {"type": "integer", "minimum": 1}, "mode": {"enum": ["Keep", "Wait"]}, "names": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}}}}`

func parse(t *testing.T, schema string) *settings.Schema {
	t.Helper()
	s, err := settings.Parse([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestProblems_SayWhereAndWhat(t *testing.T) {
	s := parse(t, sizes)
	for text, want := range map[string][]string{
		`{"size": 1}`: nil,
		`{"size": 2, "mode": "Keep", "names": ["a"]}`: nil,
		``:                                 {"settings: missing property 'size'"},
		`null`:                             {"settings: got null, want object"},
		`{"size": 0}`:                      {"settings.size: minimum: got 0, want 1"},
		`{"size": "x"}`:                    {"settings.size: got string, want integer"},
		`{"size": 1, "sise": 1}`:           {"unknown setting sise: use mode, names, size"},
		`{"size": 1, "mode": "No"}`:        {"settings.mode: value must be one of 'Keep', 'Wait'"},
		`{"size": 1, "names": ["a", "B"]}`: {"settings.names.1: 'B' does not match pattern"},
		`{"size": 0, "mode": "No"}`:        {"settings.mode: ", "settings.size: ", "; "},
		`{`:                                {"settings are not JSON"},
	} {
		got := s.Problems([]byte(text))
		if len(want) == 0 && got != "" {
			t.Errorf("%s: %q, want no problem", text, got)
		}
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q, want %q", text, got, part)
			}
		}
	}
}

// The description of a field says what to write instead; one of the whole schema says nothing about a field.
func TestProblems_HaveTheDescriptionOfTheField(t *testing.T) {
	s := parse(t, `{"description": "Settings of p.", "additionalProperties": false, "properties": {
	  "after": {"type": "string", "pattern": "^[0-9]+s$", "description": "A duration, such as 90s."},
	  "kinds": {"items": {"minLength": 2}, "description": "Kinds."},
	  "a/b~c": {"allOf": [{"type": "string", "description": "A name."}]},
	  "rules": {"items": {"additionalProperties": false, "properties": {"to": {}}}},
	  "shared": {"$ref": "#/$defs/size"}, "plain": {"type": "string"}, "long": {"type": "string", "description": "`+strings.Repeat("é", 700)+`"}},
	  "$defs": {"size": {"type": "integer", "description": "A size, in bytes."}}}`)
	for text, want := range map[string]string{
		`{"after": "7d"}`:          `settings.after: '7d' does not match pattern '^[0-9]+s$' (A duration, such as 90s.)`,
		`{"kinds": ["ab", "c"]}`:   `settings.kinds.1: minLength: got 1, want 2 (Kinds.)`,
		`{"a/b~c": 1}`:             `settings.a/b~c: got number, want string (A name.)`,
		`{"rules": [{"from": 1}]}`: `unknown setting rules.0.from: use to`,
		`{"shared": "x"}`:          `settings.shared: got string, want integer (A size, in bytes.)`,
		`{"plain": 1}`:             `settings.plain: got number, want string`,
		`{"long": 1}`:              `settings.long: got number, want string (` + strings.Repeat("é", 118) + `…)`,
	} {
		if got := s.Problems([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestProblems_AreBounded(t *testing.T) {
	s := parse(t, `{"additionalProperties": {"type": "string"}}`)
	var fields []string
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		fields = append(fields, `"`+string(c)+`": 1`)
	}
	got := s.Problems([]byte("{" + strings.Join(fields, ",") + "}"))
	if n := strings.Count(got, ";"); n != 5 || !strings.HasSuffix(got, "and 21 more") {
		t.Errorf("got %q", got)
	}
}

func TestProblems_OfManyUnknownSettingsWithLongNames_AreBounded(t *testing.T) {
	long := strings.Repeat("f", 50_000)
	s := parse(t, `{"additionalProperties": false, "properties": {"`+long+`": {}}}`)
	var fields []string
	for i := range 20_000 {
		fields = append(fields, fmt.Sprintf(`"%s%d": 1`, strings.Repeat("u", i%2*1000), i))
	}
	got := s.Problems([]byte("{" + strings.Join(fields, ",") + "}"))
	if !strings.Contains(got, "19995 more unknown settings") || len(got) > 4000 {
		t.Errorf("%d bytes: %.300q", len(got), got)
	}
}

func TestProblems_OfARequest(t *testing.T) {
	s := parse(t, sizes)
	for request, invalid := range map[string]bool{
		`{"policy": {"settings": {"size": 1}}}`: false,
		`{"policy": {"settings": {"size": 0}}}`: true,
		`{"policy": {}}`:                        true,
	} {
		if got, err := s.ProblemsOfRequest([]byte(request)); err != nil || (got != "") != invalid {
			t.Errorf("%s: %q, %v", request, got, err)
		}
	}
	var none *settings.Schema
	if got, err := none.ProblemsOfRequest([]byte(`{"policy": {"settings": {"size": 0}}}`)); got != "" || err != nil {
		t.Errorf("without a schema: %q, %v", got, err)
	}
}

func TestAnswer_IsAVerdict(t *testing.T) {
	s := parse(t, `{"properties": {"name": {"const": "a"}, "`+strings.Repeat("é", 700)+`": {"type": "string"}}}`)
	for _, c := range []struct {
		settings string
		hasHook  bool
		want     hostabi.Decision // empty: the module decides
	}{
		{`{"name": "a"}`, false, hostabi.DecisionValid},
		{`{"name": "a"}`, true, ""},
		{`{"name": "b"}`, true, hostabi.DecisionInvalid},
		{`{"` + strings.Repeat("é", 700) + `": 1}`, true, hostabi.DecisionInvalid},
	} {
		got, err := s.Answer([]byte(`{"policy": {"settings": `+c.settings+`}}`), c.hasHook)
		if err != nil || (got == nil) != (c.want == "") {
			t.Errorf("%.40s: %s, %v; want %q", c.settings, got, err, c.want)
			continue
		}
		if got == nil {
			continue
		}
		if v, err := hostabi.ParseVerdict(hostabi.HookValidate, got); err != nil || v.Decision != c.want {
			t.Errorf("%.40s: %+v, %v; want %q", c.settings, v, err, c.want)
		}
	}
}

func TestParse_RejectsWhatIsNotASchema(t *testing.T) {
	for schema, want := range map[string]string{
		`{`:                                 "is not JSON",
		`[]`:                                "is not an object",
		`{"type": "objekt"}`:                "schema.type: ",
		`{"$ref": "https://example.com/x"}`: "put all definitions into the schema itself",
		`{"$ref": "file:///etc/passwd"}`:    "put all definitions into the schema itself",
		`{"pattern": "("}`:                  "the schema of the settings is invalid",
		strings.Repeat(" ", settings.MaxSchema) + `{}`: "at most 65536 are allowed",
	} {
		if _, err := settings.Parse([]byte(schema)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%.40s) = %v, want %q", schema, err, want)
		}
	}
}

const empty = "\x00asm\x01\x00\x00\x00"

func TestSection_IsReplacedAndRead(t *testing.T) {
	if got, err := settings.Extract([]byte(empty)); got != nil || err != nil {
		t.Errorf("Extract(empty) = %q, %v", got, err)
	}
	first, err := settings.Embed([]byte(empty+"\x00\x05\x04name"), []byte(`{"a": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	second, err := settings.Embed(first, []byte(strings.Repeat("x", 300)))
	if err != nil {
		t.Fatal(err)
	}
	for want, module := range map[string][]byte{`{"a": 1}`: first, strings.Repeat("x", 300): second} {
		if got, err := settings.Extract(module); string(got) != want || err != nil || !strings.HasPrefix(string(module), empty+"\x00\x05\x04name") {
			t.Errorf("Extract() = %q, %v; want %q", got, err, want)
		}
	}
	twice := string(first) + string(first[len(empty):])
	for _, bad := range []string{"", "hello", empty + "\x00", empty + "\x00\x7f", empty + "\x00\x02\x09a", empty + "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", twice} {
		if got, err := settings.Extract([]byte(bad)); err == nil {
			t.Errorf("Extract(%q) = %q, want an error", bad, got)
		}
	}
}

func FuzzExtract(f *testing.F) {
	f.Add([]byte(empty + "\x00\x05\x04name"))
	f.Fuzz(func(t *testing.T, module []byte) {
		if _, err := settings.Extract(module); err != nil {
			return
		}
		with, err := settings.Embed(module, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := settings.Extract(with); string(got) != "{}" || err != nil {
			t.Errorf("Extract(Embed()) = %q, %v", got, err)
		}
	})
}

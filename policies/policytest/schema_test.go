package policytest_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/policytest"
)

// schemas are hostabi's, which has no module to check them with.
const schemas = "../../hostabi/schema"

// schemaFor reads a schema, with each reference replaced by what it stands for:
// the validator knows none.
func schemaFor(t *testing.T, document string) *validate.SchemaValidator {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(schemas, document+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]any
	if err := json.Unmarshal(data, &whole); err != nil {
		t.Fatal(err)
	}
	definitions, _ := whole["$defs"].(map[string]any)
	delete(whole, "$defs")
	delete(whole, "$id")
	if data, err = json.Marshal(resolved(whole, definitions)); err != nil {
		t.Fatal(err)
	}
	schema := new(spec.Schema)
	if err := json.Unmarshal(data, schema); err != nil {
		t.Fatal(err)
	}
	return validate.NewSchemaValidator(schema, nil, document, strfmt.Default)
}

func resolved(node any, definitions map[string]any) any {
	switch node := node.(type) {
	case map[string]any:
		if ref, ok := node["$ref"].(string); ok {
			return resolved(definitions[strings.TrimPrefix(ref, "#/$defs/")], definitions)
		}
		out := maps.Clone(node)
		for name, child := range node {
			out[name] = resolved(child, definitions)
		}
		return out
	case []any:
		out := make([]any, len(node))
		for i, child := range node {
			out[i] = resolved(child, definitions)
		}
		return out
	}
	return node
}

// Every verdict that the parser accepts fits the schema; of those it refuses,
// the corpus says which the schema can't tell from good ones.
func TestSchema_AgreesWithParser(t *testing.T) {
	const cannotTell = "schema: cannot tell"
	schema := schemaFor(t, "verdict")
	data, err := os.ReadFile("../../hostabi/testdata/verdicts.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[bool]int{}
	for _, entry := range strings.Split(string(data), "\n## ")[1:] {
		lines := strings.Split(strings.TrimRight(entry, "\n"), "\n")
		claim, outcome := lines[0], lines[2:]
		hook, text, _ := strings.Cut(lines[1], " ")
		_, bad := hostabi.ParseVerdict(hostabi.Hook(hook), []byte(text))
		want := bad == nil || len(outcome) > 1 && outcome[1] == cannotTell
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			if want {
				t.Errorf("%s: it is no JSON, and said to fit", claim)
			}
			continue
		}
		result := schema.Validate(value)
		if result.IsValid() != want {
			t.Errorf("%s: fits the schema: %t, %v; the parser says %v", claim, result.IsValid(), result.Errors, bad)
		}
		seen[result.IsValid()]++
	}
	if seen[true] < 10 || seen[false] < 30 {
		t.Errorf("the corpus has %d verdicts that fit and %d that do not", seen[true], seen[false])
	}
}

func TestSchema_AcceptsEveryRequest(t *testing.T) {
	schema := schemaFor(t, "request")
	cases, err := policytest.Load("testdata/keep-data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		data, err := hostabi.MarshalRequest(c.Request)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(data, &value); err != nil {
			t.Fatal(err)
		}
		if result := schema.Validate(value); !result.IsValid() {
			t.Errorf("%s: %v", c.Name, result.Errors)
		}
		fields, _ := value.(map[string]any)
		fields["unknown"] = true
		if schema.Validate(value).IsValid() {
			t.Errorf("%s: fits with a field that there is not", c.Name)
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const annotatedRego = `# METADATA
# scope: package
# schemas:
#   - input.policy.settings: {type: object, required: [size], properties: {size: {type: integer, minimum: 1}}}
package gleaner

collect := {"decision": "Orphan"} if input.policy.settings.size > 0
`

func TestModuleSchema_Rego(t *testing.T) {
	policy := writeFile(t, "policy.rego", annotatedRego)
	out, err := execute(t, "module", "schema", policy)
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "{\n", `"required": [`, `"minimum": 1`)
	if out, err = execute(t, "module", "inspect", policy); err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "described: see gleaner module schema", "collect, validate")
	fails(t, "the module rejects the settings: settings.size: minimum: got 0, want 1", "module", "validate", policy, "--settings", writeFile(t, "settings.json", `{"size": 0}`))
	fails(t, "does not describe its settings", "module", "schema", writeFile(t, "policy.rego", orphanRego))
}

func TestModuleSchema_IsCheckedInTests(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"policy.rego": annotatedRego,
		"cases.yaml": `module: policy.rego
cases:
  - name: it is kept
    request: {hook: collect, policy: {name: p, settings: {size: 1, more: true}}}
    want: {decision: Orphan}
`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := execute(t, "test", folder); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cases := filepath.Join(folder, "cases.yaml")
	text, err := os.ReadFile(cases)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "size: 1", "size: 1.5", 1)
	if err := os.WriteFile(cases, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := execute(t, "test", folder)
	if err == nil {
		t.Error("settings that the operator would reject pass")
	}
	containsAll(t, out, "the module would reject these settings: settings.size: got number, want integer")
}

func TestModuleBuild_EmbedsTheSchemaOfASettingsFile(t *testing.T) {
	folder := t.TempDir()
	module := filepath.Join(folder, "keep")
	if out, err := execute(t, "module", "new", "--lang", "go", "--hook", "collect", "--dir", module, "keep"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	schema := filepath.Join(module, "settings.schema.json")
	if err := os.WriteFile(schema, []byte("{\n  \"required\": [\"size\"]\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(folder, "keep.wasm")
	if out, err := execute(t, "module", "build", module, "-o", built); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := execute(t, "module", "schema", built)
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, `"required": [`, `"size"`)
	if err := os.WriteFile(schema, []byte(`{"type": "objekt"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, "settings.schema.json: the schema of the settings is invalid", "module", "build", module, "-o", built)
}

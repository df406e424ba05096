package rego_test

import (
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/rego"
)

const annotated = `# METADATA
# scope: package
# schemas:
#   - input.policy.settings: {type: object, required: [size], properties: {size: {type: integer, minimum: 1}}}
package gleaner

collect := {"decision": "Orphan"} if input.policy.settings.size > 1

collect := {"decision": "Delete"} if not input.policy.settings.size > 1
`

func TestSettingsSchema_IsCheckedByTheHookValidate(t *testing.T) {
	own := annotated + "\nvalidate := {\"decision\": \"Valid\"} if input.policy.settings.size < 10\n\n" +
		"validate := {\"decision\": \"Invalid\", \"reason\": \"too large\"} if not input.policy.settings.size < 10\n"
	for name, c := range map[string]struct{ text, settings, reason string }{
		"valid":                     {annotated, `{"size": 1}`, ""},
		"invalid":                   {annotated, `{"size": 0}`, "settings.size: minimum: got 0, want 1"},
		"missing":                   {annotated, ``, "settings: missing property 'size'"},
		"the rule is evaluated too": {own, `{"size": 11}`, "too large"},
		"after the schema":          {own, `{"size": -1}`, "settings.size: minimum: got -1, want 1"},
		"both accept it":            {own, `{"size": 9}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := loadText(t, c.text)
			p, err := rego.NewPolicy(t.Context(), m, rego.Options{Name: "p"})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			r := hostabi.Request{APIVersion: hostabi.Version, Hook: hostabi.HookValidate, Attempt: 1, Round: 1, Policy: hostabi.Policy{Name: "p", Settings: []byte(c.settings)}}
			got, err := p.Evaluate(t.Context(), r)
			want := hostabi.DecisionValid
			if c.reason != "" {
				want = hostabi.DecisionInvalid
			}
			if err != nil || got.Decision != want || got.Reason != c.reason {
				t.Errorf("got %+v, %v; want %s %q", got, err, want, c.reason)
			}
		})
	}
}

// loadText loads a policy of one file.
func loadText(t *testing.T, text string) *rego.Module {
	t.Helper()
	e, err := rego.New(rego.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	m, err := e.Load(t.Context(), []rego.File{{Name: "policy.rego", Text: text}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestSettingsSchema_InvalidOnesAreErrorsOfTheAuthor(t *testing.T) {
	e, err := rego.New(rego.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	rest := "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n"
	for text, want := range map[string]string{
		"# METADATA\n# schemas:\n#   - input.policy.settings: schema.settings\n" + rest:                                               "write the schema itself",
		"# METADATA\n# schemas:\n#   - input.policy.settings: {type: objekt}\n" + rest:                                                "policy.rego:1: the schema of the settings is invalid",
		"# METADATA\n# schemas:\n#   - input.policy.settings: {type: [\n" + rest:                                                      "policy.rego:",
		"# METADATA\n# schemas:\n#   - input.policy.settings: {$ref: 'http://x/y'}\n" + rest:                                          "put all definitions into the schema itself",
		strings.Replace(annotated, "collect :=", "# METADATA\n# schemas:\n#   - input.policy.settings: {type: array}\ncollect :=", 1): "several schemas",
	} {
		if _, err := e.Load(t.Context(), []rego.File{{Name: "policy.rego", Text: text}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %q", text, err, want)
		}
	}
	if _, err := e.Load(t.Context(), []rego.File{{Name: "policy.rego", Text: "# METADATA\n# title: other annotations are not read\n# what: [\n" + rest}}); err != nil {
		t.Errorf("another annotation: %v", err)
	}
}

package rego

import (
	"testing"

	"github.com/gleaner-dev/gleaner/policies"
)

func TestNeeds_AreWhatRulesRead(t *testing.T) {
	e := newEngine(t)
	const head = "package gleaner\n"
	for claim, c := range map[string]struct {
		source string
		want   policies.Needs
	}{
		"nothing of the object":          {`collect := {"decision": "Delete"} if input.attempt > 1`, policies.NeedsReference},
		"owners":                         {`collect := {"decision": "Delete"} if count(input.owners) > 1`, policies.NeedsReference},
		"what identifies it":             {`collect := {"decision": "Delete", "reason": input.object.metadata.name} if input.object.kind == "Pod"`, policies.NeedsReference},
		"a label":                        {`collect := {"decision": "Delete"} if input.object.metadata.labels.keep != "true"`, policies.NeedsMetadata},
		"a negated label":                {`collect := {"decision": "Delete"} if not input.object.metadata.labels.keep`, policies.NeedsMetadata},
		"finalizers":                     {`collect := {"decision": "Delete"} if not "a" in input.object.metadata.finalizers`, policies.NeedsMetadata},
		"all metadata":                   {`collect := {"decision": "Delete"} if count(input.object.metadata) > 3`, policies.NeedsMetadata},
		"whether the namespace goes":     {`collect := {"decision": "Delete"} if input.namespaceTerminating`, policies.NeedsMetadata},
		"the spec":                       {`collect := {"decision": "Delete"} if input.object.spec.replicas == 0`, policies.NeedsObject},
		"any field":                      {"collect := {\"decision\": \"Delete\"} if {\nsome field\ninput.object[field] == 1\n}", policies.NeedsObject},
		"a field that settings name":     {`collect := {"decision": "Delete"} if input.object[input.policy.settings.field]`, policies.NeedsObject},
		"an operand of another field":    {`collect := {"decision": "Delete"} if input.owners[input.object.spec.n]`, policies.NeedsObject},
		"the object as a value":          {`collect := {"decision": "Delete"} if object.get(input.object, "spec", {}) == {}`, policies.NeedsObject},
		"the request as a value":         {`collect := {"decision": "Delete"} if object.get(input, ["object", "spec"], {}) == {}`, policies.NeedsObject},
		"the request in a walk":          {`collect := {"decision": "Delete"} if [["a"], 1] in {x | walk(input, x)}`, policies.NeedsObject},
		"a replaced request":             {"held if input.attempt > 1\ncollect := {\"decision\": \"Delete\"} if held with input as {}", policies.NeedsObject},
		"what is withheld":               {`collect := {"decision": "Delete"} if count(input.withheld) == 0`, policies.NeedsObject},
		"a local name":                   {"collect := {\"decision\": \"Delete\"} if {\no := input.object\no.metadata.labels.a\n}", policies.NeedsObject},
		"an import":                      {"import input.object.metadata as m\ncollect := {\"decision\": \"Delete\"} if m.labels.a", policies.NeedsMetadata},
		"an else":                        {"collect := {\"decision\": \"Delete\"} if input.attempt > 1\nelse := {\"decision\": \"Orphan\"} if input.object.data", policies.NeedsObject},
		"a function of its argument":     {"has(o) if o.spec\ncollect := {\"decision\": \"Delete\"} if has(input.object)", policies.NeedsObject},
		"a comprehension":                {`collect := {"decision": "Delete"} if count([x | some x in input.object.data]) == 0`, policies.NeedsObject},
		"every":                          {"collect := {\"decision\": \"Delete\"} if {\nevery x in input.object.metadata.annotations { x != \"a\" }\n}", policies.NeedsMetadata},
		"a rule that no hook reaches":    {"spare if input.object.spec\ncollect := {\"decision\": \"Delete\"}", policies.NeedsObject},
		"a rule of the library":          {"import data.gleaner.sdk.clock\ncollect := {\"decision\": \"Delete\"} if clock.older_than(\"1h\")", policies.NeedsMetadata},
		"the library without its object": {"import data.gleaner.sdk.verdict\ncollect := verdict.delete", policies.NeedsReference},
	} {
		t.Run(claim, func(t *testing.T) {
			c.source = head + c.source
			compiled, err := e.Compile(t.Context(), []File{{Name: "p.rego", Text: c.source}})
			if err != nil {
				t.Fatal(err)
			}
			if compiled.Needs != c.want {
				t.Errorf("it needs %s, want %s:\n%s", compiled.Needs, c.want, c.source)
			}
		})
	}
}

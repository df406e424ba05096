package library_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/library"
	"github.com/gleaner-dev/gleaner/policies/policytest"
	"github.com/gleaner-dev/gleaner/policies/settings"
)

// readsSettings says whether the rules of a policy read its settings.
func readsSettings(p library.Policy) bool {
	for line := range strings.Lines(p.Source) {
		if !strings.HasPrefix(line, "#") && (strings.Contains(line, "gleaner.sdk.settings") || strings.Contains(line, "policy.settings")) {
			return true
		}
	}
	return false
}

// schemas are those of the policies that were loaded, since compiling takes time; nil: it has none.
var schemas = map[string]*settings.Schema{}

func schemaOf(t *testing.T, p library.Policy) *settings.Schema {
	t.Helper()
	s, ok := schemas[p.Name]
	if !ok {
		s = load(t, p).Settings
		schemas[p.Name] = s
	}
	return s
}

// forEachSchema runs a test for every policy that reads settings.
func forEachSchema(t *testing.T, test func(t *testing.T, p library.Policy, s *settings.Schema)) {
	t.Helper()
	tested := 0
	forEachPolicy(t, func(t *testing.T, p library.Policy) {
		if !readsSettings(p) {
			return
		}
		tested++
		s := schemaOf(t, p)
		if s == nil {
			t.Fatal("its settings have no schema: annotate the package with schemas: [{input.policy.settings: {…}}]")
		}
		test(t, p, s)
	})
	if tested == 0 {
		t.Error("no policy reads settings")
	}
}

// described is the part of a schema that every policy has.
type described struct {
	Type                 string
	Description          string
	AdditionalProperties any
	Properties           map[string]described
}

func fieldsOf(t *testing.T, s *settings.Schema) described {
	t.Helper()
	var all described
	if err := json.Unmarshal(s.JSON(), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLibrary_SettingsAreDescribed(t *testing.T) {
	forEachSchema(t, func(t *testing.T, p library.Policy, s *settings.Schema) {
		all := fieldsOf(t, s)
		if all.Type != "object" || all.AdditionalProperties != false {
			t.Errorf("its settings are of type %q, with additionalProperties: %v", all.Type, all.AdditionalProperties)
		}
		names := known(t, p)
		for name := range names {
			if _, ok := all.Properties[name]; !ok {
				t.Errorf("its schema lacks %s", name)
			}
		}
		for name, field := range all.Properties {
			if !names[name] {
				t.Errorf("its schema has %s, which the policy does not know", name)
			}
			if field.Type == "" {
				t.Errorf("%s has no type", name)
			}
			if !strings.Contains(field.Description, "If absent, ") || !strings.HasSuffix(field.Description, ".") {
				t.Errorf("the description of %s does not say what it is if it is absent: %q", name, field.Description)
			}
			if durations := strings.Contains(p.Source, `"`+name+`": "duration`); durations && !strings.Contains(field.Description, "such as ") {
				t.Errorf("the description of %s does not show units: %q", name, field.Description)
			}
		}
	})
}

func TestLibrary_SettingsInResourcesAndCasesMatchTheirSchema(t *testing.T) {
	used := 0
	check := func(t *testing.T, s *settings.Schema, where string, given json.RawMessage) {
		t.Helper()
		if len(given) != 0 && string(given) != "{}" {
			used++
		}
		if problem := s.Problems(given); problem != "" {
			t.Errorf("%s: %s", where, problem)
		}
	}
	forEachSchema(t, func(t *testing.T, p library.Policy, s *settings.Schema) {
		for document := range strings.SplitSeq(text(t, filepath.Join(p.Name, "resources.yaml")), "---\n") {
			var policy v1alpha1.ClusterGCPolicy
			if err := yaml.Unmarshal([]byte(document), &policy); err != nil {
				t.Fatal(err)
			}
			if policy.Kind == "ClusterGCPolicy" && policy.Spec.Settings != nil {
				check(t, s, "resources.yaml: "+policy.Name, policy.Spec.Settings.Raw)
			}
		}
		cases, err := policytest.Load(filepath.Join(p.Name, "cases.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			if c.Want.Decision != hostabi.DecisionInvalid {
				check(t, s, fmt.Sprintf("cases.yaml:%d: %s", c.Line, c.Name), c.Request.Policy.Settings)
			}
		}
	})
	if used < 10 {
		t.Errorf("only %d resources and cases have settings", used)
	}
}

func TestLibrary_SettingsThatAreMisspelledOrOfAnotherTypeAreRefused(t *testing.T) {
	forEachSchema(t, func(t *testing.T, _ library.Policy, s *settings.Schema) {
		for name := range fieldsOf(t, s).Properties {
			misspelled := name + name[len(name)-1:]
			if problem := s.Problems([]byte(`{"` + misspelled + `": 7}`)); !strings.HasPrefix(problem, "unknown setting "+misspelled+": use ") {
				t.Errorf("%s: %q", misspelled, problem)
			}
			for _, value := range []string{"7", "null", `[7]`, `{"Pod": 7}`} {
				if problem := s.Problems([]byte(`{"` + name + `": ` + value + `}`)); !strings.HasPrefix(problem, "settings."+name) {
					t.Errorf("%s: %s: %q", name, value, problem)
				}
			}
		}
	})
}

// longKind is a kind whose list has a longer id than an intent may have.
var longKind = "infrastructure.cluster.x-k8s.io/v1beta1/" + strings.Repeat("Machine", 4)

// judged are settings by policy, with how the problem begins; "": they are valid.
var judged = map[string]map[string]string{
	"approval": {
		`{"atMost": "720h"}`:   "",
		`{"atMost": "2 days"}`: "settings.atMost: '2 days' does not match",
	},
	"blocking-only-foreground": {
		`{"owners": ["Pod", "apps/StatefulSet"], "recheck": "1.5m"}`: "",
		`{"owners": ["statefulsets.apps"]}`:                          "settings.owners.0: ",
	},
	"crd-with-objects": {
		`{"exempt": ["widgets.example.com"]}`: "",
		`{"exempt": ["Widget"]}`:              "settings.exempt.0: ",
	},
	"foreground-front": {
		`{"loadBalancers": "no"}`:  "settings.loadBalancers: got string, want boolean",
		`{"loadBalancers": false}`: "",
		`{"kinds": []}`:            "settings.kinds: minItems",
	},
	"grace-period": {
		`{"after": "1h30m", "byKind": {}, "annotation": "example.com/grace", "foreground": "Delay"}`: "",
		`{"byKind": {"cert-manager.io/Certificate": "500ms"}}`:                                       "",
		`{"byKind": {"secrets": "1h"}}`:                                                              "settings.byKind: additional properties 'secrets' not allowed",
		`{"byKind": {"Secret": "7d"}}`:                                                               "settings.byKind.Secret: ",
		`{"foreground": "delay"}`:                                                                    "settings.foreground: value must be one of 'Delay', 'Abstain'",
	},
	"in-use": {
		`{"kinds": ["ConfigMap", "storage.k8s.io/StorageClass"]}`: "",
		`{"kinds": ["Service"]}`:                                  "settings.kinds.0: value must be one of 'PersistentVolumeClaim', ",
	},
	"keep-data": {
		`{"unless": {"data": ""}}`:   "",
		`{"unless": "data=scratch"}`: "settings.unless: got string, want object",
	},
	"last-success": {
		`{"label": "velero.io/schedule-name"}`: "",
		`{"label": "app=web"}`:                 "settings.label: ",
	},
	"leaf-first": {
		`{"last": ["Secret,Service"]}`:                                          "settings.last.0: ",
		`{"first": ["batch/Job"], "last": ["Secret", "PersistentVolumeClaim"]}`: "",
	},
	"lien": {
		`{"overriddenBy": ["system:masters", "Team A"]}`: "",
		`{"overriddenBy": [""]}`:                         "settings.overriddenBy.0: ",
	},
	"namespace-with-protected-content": {
		`{"content": ["v1/Secret", "example.com/v1beta1/Widget"], "selector": "a in (b, c)"}`: "",
		`{"content": ["Secret"]}`:                 "settings.content.0: ",
		`{"content": ["v1/secrets"]}`:             "settings.content.0: ",
		`{"content": ["v1/Secret", "v1/Secret"]}`: "settings.content: items at 0 and 1 are equal",
		`{"content": ["` + longKind + `"]}`:       "settings.content.0: maxLength: got 68, want 63",
	},
	"needed-images": {
		`{"kinds": ["batch/CronJob"], "namespaces": ["shop-1"]}`: "",
		`{"namespaces": ["shop-*"]}`:                             "settings.namespaces.0: ",
	},
	"orphan-by-annotation": {
		`{"annotation": "helm.sh/resource-policy", "value": "keep"}`: "",
		`{"value": true}`: "settings.value: got boolean, want string",
	},
	"protect-namespaces": {
		`{"label": "kubernetes.io/metadata.name", "values": ["shop"], "decision": "Orphan"}`: "",
		`{"values": [true]}`: "settings.values.0: got boolean, want string",
	},
	"quarantine-recreated-owner": {
		`{"for": "72h", "recheck": "10m"}`: "",
		`{"for": "3d"}`:                    "settings.for: '3d' does not match",
		`{"for": 72}`:                      "settings.for: got number, want string",
	},
}

// The schemas accept what the policies are for, and refuse what would have no effect. What they accept, validate accepts.
func TestLibrary_SettingsAreAcceptedIfThePolicyCanUseThem(t *testing.T) {
	forEachSchema(t, func(t *testing.T, p library.Policy, s *settings.Schema) {
		policy := startPolicy(t, p)
		accepted, refused := 0, 0
		for given, want := range judged[p.Name] {
			problem := s.Problems([]byte(given))
			if (problem == "") != (want == "") || !strings.HasPrefix(problem, want) {
				t.Errorf("%s: %q, want %q", given, problem, want)
			}
			if want != "" {
				refused++
				continue
			}
			accepted++
			verdict, err := policy.Evaluate(t.Context(), hostabi.Request{
				APIVersion: hostabi.Version, Hook: hostabi.HookValidate, Policy: hostabi.Policy{Name: p.Name, Settings: json.RawMessage(given)},
			})
			if err != nil || verdict.Decision != hostabi.DecisionValid {
				t.Errorf("%s: %+v, %v", given, verdict, err)
			}
		}
		if accepted == 0 || refused == 0 {
			t.Errorf("%d settings are accepted and %d refused: add others", accepted, refused)
		}
	})
}

package crds

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/crds/admit"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
)

type refusals struct {
	Bases map[string]any `json:"bases"`
	Cases []refusal      `json:"cases"`
}

type refusal struct {
	Claim   string            `json:"claim"`
	Kinds   []string          `json:"kinds"`
	Name    string            `json:"name"` // of the object; without it, "tried"
	Was     any               `json:"was"`  // a change to what it was before, for rules about changes
	Spec    any               `json:"spec"`
	Each    []any             `json:"each"` // further changes, each to be tried on its own
	Refused map[string]string `json:"refused"`
}

// specs are those that a case stands for.
func (r refusal) specs(base any) []any {
	changed := merge(base, r.Spec)
	if len(r.Each) == 0 {
		return []any{changed}
	}
	var list []any
	for _, each := range r.Each {
		list = append(list, merge(changed, each))
	}
	return list
}

func TestABadResourceIsRefusedWithAMessageThatSaysWhatToWrite(t *testing.T) {
	a := newAPI(t)
	file := load[refusals](t, "refused.yaml")
	for name, base := range file.Bases {
		if _, err := a.try(kindOf(t, name), base); err != nil {
			t.Fatalf("the spec that the cases for %s change is refused itself: %v", name, err)
		}
	}
	for _, c := range file.Cases {
		for _, name := range c.Kinds {
			for i, spec := range c.specs(file.Bases[name]) {
				t.Run(fmt.Sprintf("%s/%s/%d", c.Claim, name, i), func(t *testing.T) {
					err := a.tryCase(c, kindOf(t, name), file.Bases[name], spec)
					if err == nil {
						t.Fatal("it was accepted")
					}
					compareComplaints(t, c.Refused, err)
					if c.Was == nil {
						compareOffline(t, kindOf(t, name), c.Name, spec, err)
					}
				})
			}
		}
	}
}

// tryCase asks what would be made of an object, or of a change to it.
func (a *api) tryCase(c refusal, k kind, base, spec any) error {
	a.Helper()
	if c.Name != "" {
		_, err := a.tryNamed(k, c.Name, spec)
		return err
	}
	if c.Was == nil {
		_, err := a.try(k, spec)
		return err
	}
	was, err := a.client(k).Create(a.Context(), object(k, "tried", merge(base, c.Was)), metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	defer func() {
		if err := a.client(k).Delete(a.Context(), "tried", metav1.DeleteOptions{}); err != nil {
			a.Error(err)
		}
	}()
	was.Object["spec"] = spec
	_, err = a.client(k).Update(a.Context(), was, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// compareComplaints holds an error against what is wanted, by field.
func compareComplaints(t *testing.T, want map[string]string, err error) {
	t.Helper()
	got, err := complaints(err)
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range got {
		field, message, _ := strings.Cut(complaint, ": ")
		if part, ok := want[field]; !ok || !strings.Contains(message, part) {
			t.Errorf("not expected: %s", complaint)
		}
	}
	for field, part := range want {
		found := func(c string) bool { return strings.HasPrefix(c, field+": ") && strings.Contains(c, part) }
		if !slices.ContainsFunc(got, found) {
			t.Errorf("missing: %s: %s", field, part)
		}
	}
}

// compareOffline holds what is found wrong without an API server against what one does.
func compareOffline(t *testing.T, k kind, name string, spec any, served error) {
	t.Helper()
	if name == "" {
		name = "tried"
	}
	err := admit.Object(t.Context(), asRead(t, object(k, name, spec)))
	if err == nil {
		t.Fatal("it is accepted without an API server")
	}
	want, err1 := complaints(served)
	got, err2 := complaints(err)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("without an API server something else is found (-with one +without):\n%s", diff)
	}
}

// asRead is the object as it is read from a file, with integers.
func asRead(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	data, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	read := &unstructured.Unstructured{}
	if err := read.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return read
}

// What no case is refused by might as well not be there.
func TestEveryRuleRefusesACaseOfTheCorpus(t *testing.T) {
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, c := range load[refusals](t, "refused.yaml").Cases {
		for _, message := range c.Refused {
			shown = append(shown, message)
		}
	}
	rules := 0
	for _, definition := range definitions {
		for _, schema := range schemas("", *definition.Spec.Versions[0].Schema.OpenAPIV3Schema) {
			for _, rule := range schema.XValidations {
				rules++
				if !slices.Contains(shown, rule.Message) {
					t.Errorf("%s: no case shows %q", definition.Name, rule.Message)
				}
			}
		}
	}
	if rules < 50 {
		t.Errorf("found %d rules in all: they are not looked for where they are", rules)
	}
}

// schemas are a schema and all below it, by path.
func schemas(at string, schema apiextensionsv1.JSONSchemaProps) map[string]apiextensionsv1.JSONSchemaProps {
	found := map[string]apiextensionsv1.JSONSchemaProps{at: schema}
	for name, property := range schema.Properties {
		for path, s := range schemas(at+"."+name, property) {
			found[path] = s
		}
	}
	if schema.Items != nil {
		for path, s := range schemas(at+"[]", *schema.Items.Schema) {
			found[path] = s
		}
	}
	return found
}

type acceptance struct {
	Claim  string         `json:"claim"`
	Kinds  []string       `json:"kinds"`
	Spec   map[string]any `json:"spec"`
	Filled map[string]any `json:"filled"` // what the API server adds
}

func TestAGoodResourceIsAcceptedAndItsDefaultsAreFilledIn(t *testing.T) {
	a := newAPI(t)
	for _, c := range load[[]acceptance](t, "accepted.yaml") {
		for _, name := range c.Kinds {
			t.Run(c.Claim+"/"+name, func(t *testing.T) {
				got, err := a.try(kindOf(t, name), c.Spec)
				if err != nil {
					t.Fatal(err)
				}
				want := convert[any](t, merge(c.Spec, c.Filled))
				if diff := cmp.Diff(want, convert[any](t, got)); diff != "" {
					t.Errorf("spec (-want +got):\n%s", diff)
				}
				o := asRead(t, object(kindOf(t, name), "tried", c.Spec))
				if err := admit.Object(t.Context(), o); err != nil {
					t.Fatal("without an API server: ", err)
				}
				if diff := cmp.Diff(want, convert[any](t, o.Object["spec"])); diff != "" {
					t.Errorf("spec without an API server (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// What the operator reads must be all that a user wrote.
func TestNothingIsLostInTheGoTypes(t *testing.T) {
	a := newAPI(t)
	for _, c := range load[[]acceptance](t, "accepted.yaml") {
		for _, name := range c.Kinds {
			t.Run(c.Claim+"/"+name, func(t *testing.T) {
				k := kindOf(t, name)
				want, err := a.try(k, c.Spec)
				if err != nil {
					t.Fatal(err)
				}
				got, err := a.try(k, convert[any](t, typed(t, name, c.Spec)))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("spec by way of the Go types (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func typed(t *testing.T, kind string, spec any) any {
	t.Helper()
	switch kind {
	case v1alpha1.KindPolicyModule, v1alpha1.KindClusterPolicyModule:
		return convert[v1alpha1.PolicyModuleSpec](t, spec)
	case v1alpha1.KindFinalizer, v1alpha1.KindClusterFinalizer:
		return convert[v1alpha1.FinalizerSpec](t, spec)
	default:
		return convert[v1alpha1.GCPolicySpec](t, spec)
	}
}

// The API server and the parser of verdicts must agree, or a policy is accepted
// that can't be carried out.
func TestAFixedVerdictIsAcceptedExactlyIfItsHookCouldGiveIt(t *testing.T) {
	a := newAPI(t)
	for _, hook := range []hostabi.Hook{hostabi.HookCollect, hostabi.HookPropagate} {
		for _, verdict := range verdicts() {
			spec := map[string]any{
				"resources": []any{map[string]any{"apiGroups": []any{"apps"}, "resources": []any{"deployments"}}},
				"fixed":     map[string]any{string(hook): verdict},
			}
			document := convert[v1alpha1.GCPolicySpec](t, spec).Fixed
			written := document.Collect
			if hook == hostabi.HookPropagate {
				written = document.Propagate
			}
			data, err := json.Marshal(written)
			if err != nil {
				t.Fatal(err)
			}
			_, parserSays := hostabi.ParseVerdict(hook, data)
			_, serverSays := a.try(policy, spec)
			if (parserSays == nil) != (serverSays == nil) {
				t.Errorf("%s answered with %s: the parser says %v, the API server %v", hook, data, parserSays, serverSays)
			}
		}
	}
}

// verdicts are every decision with each of the fields, in several values.
func verdicts() []map[string]any {
	fields := []map[string]any{
		{}, {"propagation": "Orphan"}, {"propagation": "None"}, {"gracePeriodSeconds": int64(30)}, {"gracePeriodSeconds": int64(1) << 31},
		{"reason": strings.Repeat("x", hostabi.MaxReasonBytes)}, {"reason": strings.Repeat("x", hostabi.MaxReasonBytes+1)},
		{"dependents": []any{map[string]any{"group": "apps", "kind": "Deployment", "decision": "Orphan"}}},
		{"dependents": []any{map[string]any{"kind": "Pod", "decision": "Foreground"}}},
		{"dependents": []any{map[string]any{"group": "-", "kind": "Pod", "decision": "Delete"}}},
	}
	for _, duration := range []string{"1ns", "1.5h", ".5s", "1.s", "+1s", "1m1h", "1µs", "720h0m0s", "720h1ns", "0s", "1", "1d", "s", ".s", "1e3s", " 1s"} {
		fields = append(fields, map[string]any{"delay": duration}, map[string]any{"after": duration})
	}
	decisions := []string{"Delete", "Orphan", "Background", "Foreground", "Wait", "Abstain", "Done", "delete", ""}
	var list []map[string]any
	for _, decision := range decisions {
		for _, more := range fields {
			verdict := map[string]any{"decision": decision}
			for name, value := range more {
				verdict[name] = value
			}
			list = append(list, verdict)
		}
	}
	return list
}

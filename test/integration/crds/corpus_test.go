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
	Claim    string            `json:"claim"`
	Kinds    []string          `json:"kinds"`
	Name     string            `json:"name"` // of the object; without it, "tried"
	Previous any               `json:"was"`  // patch that gives the previous object, for transition rules
	Spec     any               `json:"spec"`
	Variants []any             `json:"each"` // further patches, each tried on its own
	Refused  map[string]string `json:"refused"`
}

// specs returns the specs that a case describes.
func (r refusal) specs(base any) []any {
	changed := merge(base, r.Spec)
	if len(r.Variants) == 0 {
		return []any{changed}
	}
	var list []any
	for _, each := range r.Variants {
		list = append(list, merge(changed, each))
	}
	return list
}

func TestInvalidResource_IsRefusedWithAMessage(t *testing.T) {
	a := newAPI(t)
	file := load[refusals](t, "refused.yaml")
	for name, base := range file.Bases {
		if _, err := a.dryRun(kindOf(t, name), base); err != nil {
			t.Fatalf("base spec of %s is refused: %v", name, err)
		}
	}
	for _, c := range file.Cases {
		for _, name := range c.Kinds {
			for i, spec := range c.specs(file.Bases[name]) {
				t.Run(fmt.Sprintf("%s/%s/%d", c.Claim, name, i), func(t *testing.T) {
					err := a.dryRunCase(c, kindOf(t, name), file.Bases[name], spec)
					if err == nil {
						t.Fatal("object was accepted")
					}
					compareErrors(t, c.Refused, err)
					if c.Previous == nil {
						compareOffline(t, kindOf(t, name), c.Name, spec, err)
					}
				})
			}
		}
	}
}

// dryRunCase creates or updates an object in a dry run.
func (a *api) dryRunCase(c refusal, k kind, base, spec any) error {
	a.Helper()
	if c.Name != "" {
		_, err := a.dryRunNamed(k, c.Name, spec)
		return err
	}
	if c.Previous == nil {
		_, err := a.dryRun(k, spec)
		return err
	}
	was, err := a.client(k).Create(a.Context(), object(k, "tried", merge(base, c.Previous)), metav1.CreateOptions{})
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

// compareErrors compares an error with the wanted messages, by field.
func compareErrors(t *testing.T, want map[string]string, err error) {
	t.Helper()
	got, err := validationErrors(err)
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range got {
		field, message, _ := strings.Cut(complaint, ": ")
		if part, ok := want[field]; !ok || !strings.Contains(message, part) {
			t.Errorf("unexpected: %s", complaint)
		}
	}
	for field, part := range want {
		found := func(c string) bool { return strings.HasPrefix(c, field+": ") && strings.Contains(c, part) }
		if !slices.ContainsFunc(got, found) {
			t.Errorf("missing: %s: %s", field, part)
		}
	}
}

// compareOffline compares offline validation with the API server's.
func compareOffline(t *testing.T, k kind, name string, spec any, served error) {
	t.Helper()
	if name == "" {
		name = "tried"
	}
	err := admit.Admit(t.Context(), asRead(t, object(k, name, spec)))
	if err == nil {
		t.Fatal("offline validation accepted it")
	}
	want, err1 := validationErrors(served)
	got, err2 := validationErrors(err)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("offline validation differs (-API server +offline):\n%s", diff)
	}
}

// asRead returns the object as read from a file, with integers.
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

// A rule that refuses no case is unnecessary or untested.
func TestRules_EachRefusesACase(t *testing.T) {
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
					t.Errorf("%s: no case for rule %q", definition.Name, rule.Message)
				}
			}
		}
	}
	if rules < 50 {
		t.Errorf("found only %d rules: the search is broken", rules)
	}
}

// schemas returns a schema and all schemas below it, by path.
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
	Filled map[string]any `json:"filled"` // defaults that the API server adds
}

func TestValidResource_IsAcceptedAndDefaulted(t *testing.T) {
	a := newAPI(t)
	for _, c := range load[[]acceptance](t, "accepted.yaml") {
		for _, name := range c.Kinds {
			t.Run(c.Claim+"/"+name, func(t *testing.T) {
				got, err := a.dryRun(kindOf(t, name), c.Spec)
				if err != nil {
					t.Fatal(err)
				}
				want := convert[any](t, merge(c.Spec, c.Filled))
				if diff := cmp.Diff(want, convert[any](t, got)); diff != "" {
					t.Errorf("spec (-want +got):\n%s", diff)
				}
				o := asRead(t, object(kindOf(t, name), "tried", c.Spec))
				if err := admit.Admit(t.Context(), o); err != nil {
					t.Fatal("offline validation: ", err)
				}
				if diff := cmp.Diff(want, convert[any](t, o.Object["spec"])); diff != "" {
					t.Errorf("spec from offline validation (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// The operator must read everything that a user wrote.
func TestGoTypes_RoundTripEverything(t *testing.T) {
	a := newAPI(t)
	for _, c := range load[[]acceptance](t, "accepted.yaml") {
		for _, name := range c.Kinds {
			t.Run(c.Claim+"/"+name, func(t *testing.T) {
				k := kindOf(t, name)
				want, err := a.dryRun(k, c.Spec)
				if err != nil {
					t.Fatal(err)
				}
				got, err := a.dryRun(k, convert[any](t, typed(t, name, c.Spec)))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("spec converted through the Go types (-want +got):\n%s", diff)
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
	case v1alpha1.KindNodeRetentionPolicy:
		return convert[v1alpha1.NodeRetentionPolicySpec](t, spec)
	case v1alpha1.KindImageRemovalRequest:
		return convert[v1alpha1.ImageRemovalRequestSpec](t, spec)
	case v1alpha1.KindFinalizer, v1alpha1.KindClusterFinalizer:
		return convert[v1alpha1.FinalizerSpec](t, spec)
	case v1alpha1.KindArchivePolicy, v1alpha1.KindClusterArchivePolicy:
		return convert[v1alpha1.ArchivePolicySpec](t, spec)
	case v1alpha1.KindDeletionBudget, v1alpha1.KindClusterDeletionBudget:
		return convert[v1alpha1.DeletionBudgetSpec](t, spec)
	case v1alpha1.KindRetentionPolicy, v1alpha1.KindClusterRetentionPolicy:
		return convert[v1alpha1.RetentionPolicySpec](t, spec)
	case v1alpha1.KindPause, v1alpha1.KindClusterPause:
		return convert[v1alpha1.PauseSpec](t, spec)
	default:
		return convert[v1alpha1.GCPolicySpec](t, spec)
	}
}

// The API server and the parser of verdicts must agree, or a policy is accepted
// whose verdict is invalid.
func TestFixedVerdict_IsAccepted_IffTheParserAcceptsIt(t *testing.T) {
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
			_, serverSays := a.dryRun(policy, spec)
			if (parserSays == nil) != (serverSays == nil) {
				t.Errorf("%s verdict %s: the parser returned %v, the API server %v", hook, data, parserSays, serverSays)
			}
		}
	}
}

// verdicts returns every decision with each of the fields, in several values.
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

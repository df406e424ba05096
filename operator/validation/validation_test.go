package validation_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/modulestore/fetch"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/operator/validation"
	"github.com/gleaner-dev/gleaner/policies"
)

const validating = "package gleaner\n\nvalidate := {\"decision\": \"Valid\"} if input.policy.settings.size > 0\n\n" +
	"validate := {\"decision\": \"Invalid\", \"reason\": \"size has to be positive\"} if not input.policy.settings.size > 0\n\n" +
	"collect := {\"decision\": \"Orphan\"}\n"

const withSchema = "# METADATA\n# schemas:\n#   - input.policy.settings: {properties: {size: {type: integer}}}\n" + policysettest.KeepText

// server is the webhook of a fixture.
type server struct {
	*policysettest.Fixture
	handler http.Handler
}

func newServer(t *testing.T, modules validation.Modules, loaded ...client.Object) *server {
	t.Helper()
	f := policysettest.New(t, nil, loaded...)
	f.Settle()
	builder, err := policyset.NewBuilder(policyset.Rules{CheckGrants: func(policies.Grants) error { return nil }}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if modules == nil {
		modules = f.Loader.Store
	}
	handler, err := validation.New(validation.Options{Builder: builder, Current: f.Publisher.Current, Modules: modules, CheckSigners: fetch.CheckSigners}).Handler()
	if err != nil {
		t.Fatal(err)
	}
	return &server{f, handler}
}

// apply sends a resource to the webhook as the API server does.
func (s *server) apply(kind string, o client.Object) *admissionv1.AdmissionResponse {
	s.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		s.Fatal(err)
	}
	gvk := v1alpha1.GroupVersion.WithKind(kind)
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "u", Kind: metav1.GroupVersionKind(gvk), Name: o.GetName(), Namespace: o.GetNamespace(), Operation: admissionv1.Create,
		Object: runtime.RawExtension{Raw: raw},
	}})
	if err != nil {
		s.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequestWithContext(s.Context(), http.MethodPost, validation.Path, strings.NewReader(string(body))))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || review.Response == nil || review.Response.UID != "u" {
		s.Fatalf("status %d, %s: %v", w.Code, w.Body, err)
	}
	return review.Response
}

func settings(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }

func policy(change func(*v1alpha1.GCPolicySpec)) *v1alpha1.ClusterGCPolicy {
	p := &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "p"), Spec: v1alpha1.GCPolicySpec{Resources: policysettest.ConfigMaps()}}
	change(&p.Spec)
	return p
}

func using(module, text string) *v1alpha1.ClusterGCPolicy {
	return policy(func(s *v1alpha1.GCPolicySpec) {
		s.Module = &v1alpha1.ModuleReference{Name: module}
		if text != "" {
			s.Settings = settings(text)
		}
	})
}

func TestApply_RejectsWhatStatusWouldReport(t *testing.T) {
	s := newServer(t, nil, policysettest.Module("validating", validating), policysettest.Module("finalizing", policysettest.FinalizeText), policysettest.Module("schema", withSchema))
	condition := func(expression string) func(*v1alpha1.GCPolicySpec) {
		return func(spec *v1alpha1.GCPolicySpec) {
			spec.Fixed = &v1alpha1.FixedVerdicts{Collect: &v1alpha1.FixedVerdict{Decision: "Orphan"}}
			spec.MatchConditions = []v1alpha1.MatchCondition{{Name: "c", Expression: expression}}
		}
	}
	for name, c := range map[string]struct {
		kind   string
		object client.Object
		want   string // part of the message; empty: it is allowed
	}{
		"a module that compiles":     {kind: "ClusterPolicyModule", object: policysettest.Module("m", policysettest.KeepText)},
		"one that is loaded":         {kind: "ClusterPolicyModule", object: policysettest.Module("again", validating)},
		"Rego that does not compile": {kind: "ClusterPolicyModule", object: policysettest.Module("m", "package gleaner\n\ncollect := {"), want: "ClusterPolicyModule m: it does not compile: "},
		"a forbidden built-in":       {kind: "ClusterPolicyModule", object: policysettest.Module("m", "package gleaner\n\ncollect := http.send({\"method\": \"get\", \"url\": \"http://x\"})\n"), want: "http.send"},
		"Rego without hooks":         {kind: "ClusterPolicyModule", object: policysettest.Module("m", "package gleaner\n\nx := 1\n"), want: "ClusterPolicyModule m: "},
		"a digest of other content":  {kind: "ClusterPolicyModule", object: pinned("m", strings.Repeat("0", 64)), want: "want " + strings.Repeat("0", 64)},
		"a signer without a key":     {kind: "ClusterPolicyModule", object: signedBy(v1alpha1.Signer{PublicKey: "key"}), want: "ClusterPolicyModule m: spec.verify: signer 1 of 1: the publicKey is not a public key in PEM"},
		"a signer with an invalid expression": {kind: "ClusterPolicyModule", object: signedBy(v1alpha1.Signer{Identity: &v1alpha1.SignerIdentity{Issuer: "https://x", SubjectRegExp: "("}}),
			want: "ClusterPolicyModule m: spec.verify: signer 1 of 1: "},
		"an image that a user signs":            {kind: "ClusterPolicyModule", object: signedBy(v1alpha1.Signer{Identity: &v1alpha1.SignerIdentity{Issuer: "https://x", Subject: "jane"}})},
		"CEL that compiles":                     {kind: "ClusterGCPolicy", object: policy(condition("object.metadata.name == 'a'"))},
		"CEL that does not compile":             {kind: "ClusterGCPolicy", object: policy(condition("object.metadata.")), want: "ClusterGCPolicy p: "},
		"CEL of another type":                   {kind: "ClusterGCPolicy", object: policy(condition("'a'")), want: "ClusterGCPolicy p: "},
		"valid settings":                        {kind: "ClusterGCPolicy", object: using("validating", `{"size": 1}`)},
		"invalid settings":                      {kind: "ClusterGCPolicy", object: using("validating", `{"size": -1}`), want: "ClusterGCPolicy p: the module refuses settings: size has to be positive"},
		"a module without its hooks":            {kind: "ClusterGCPolicy", object: using("finalizing", ""), want: "answers none of collect, propagate, protect and retain"},
		"settings that do not match the schema": {kind: "ClusterGCPolicy", object: using("schema", `{"size": "large"}`), want: "ClusterGCPolicy p: the module refuses settings: settings.size: got string, want integer"},
		"settings that match the schema":        {kind: "ClusterGCPolicy", object: using("schema", `{"size": 1}`)},
		"a module that comes later":             {kind: "ClusterGCPolicy", object: using("later", "")},
		"a policy that is not pinned": {kind: "ClusterGCPolicy", object: policy(func(s *v1alpha1.GCPolicySpec) {
			s.Mode, s.Module = v1alpha1.ModeEnforce, &v1alpha1.ModuleReference{Name: "validating"}
		})},
		"a finalizer with another module": {kind: "ClusterFinalizer", object: finalizer("validating"), want: "ClusterFinalizer f: "},
		"a finalizer":                     {kind: "ClusterFinalizer", object: finalizer("finalizing")},
		"a retention policy": {kind: "ClusterRetentionPolicy", object: &v1alpha1.ClusterRetentionPolicy{ObjectMeta: policysettest.Meta("", "r"), Spec: v1alpha1.RetentionPolicySpec{
			Resources: []v1alpha1.RetentionRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}}}, MatchConditions: []v1alpha1.MatchCondition{{Name: "c", Expression: "object."}}}},
			want: "ClusterRetentionPolicy r: "},
		"an archive policy": {kind: "ArchivePolicy", object: &v1alpha1.ArchivePolicy{ObjectMeta: policysettest.Meta("shop", "a"), Spec: v1alpha1.ArchivePolicySpec{
			Resources: policysettest.ConfigMaps(), ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no label!": "a"}}}},
			want: "ArchivePolicy shop/a: objectSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.apply(c.kind, c.object)
			if len(got.Warnings) != 0 {
				t.Errorf("warnings %q", got.Warnings)
			}
			if c.want == "" {
				if !got.Allowed {
					t.Errorf("it is denied: %s", got.Result.Message)
				}
				return
			}
			if got.Allowed || got.Result.Reason != metav1.StatusReasonInvalid || !strings.Contains(got.Result.Message, c.want) {
				t.Errorf("allowed: %t, %+v; want it denied with %q", got.Allowed, got.Result, c.want)
			}
		})
	}
	if again := s.Settle(); len(again.Policies) != 0 || len(again.Modules) != 3 {
		t.Errorf("afterwards there are %d policies and %d modules: what is only checked must not be used", len(again.Policies), len(again.Modules))
	}
}

func pinned(name, digest string) client.Object {
	m := policysettest.Module(name, policysettest.KeepText)
	m.Spec.SHA256 = digest
	return m
}

func signedBy(s v1alpha1.Signer) client.Object {
	return &v1alpha1.ClusterPolicyModule{ObjectMeta: policysettest.Meta("", "m"), Spec: v1alpha1.PolicyModuleSpec{
		Wasm: &v1alpha1.WasmSource{Image: "registry.example.com/m:v1"}, Verify: &v1alpha1.SignatureVerification{Signers: []v1alpha1.Signer{s}}}}
}

func finalizer(module string) client.Object {
	return &v1alpha1.ClusterFinalizer{ObjectMeta: policysettest.Meta("", "f"), Spec: v1alpha1.FinalizerSpec{
		Finalizer: "example.com/f", Resources: policysettest.ConfigMaps(), Module: v1alpha1.ModuleReference{Name: module}}}
}

// slow simulates workers that do not answer.
type slow struct{ validation.Modules }

func (slow) Try(ctx context.Context, _ modulestore.Resource) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestApply_WhatCannotBeCheckedInTimeIsAllowedWithAWarning(t *testing.T) {
	s := newServer(t, slow{})
	got := s.apply("ClusterPolicyModule", policysettest.Module("m", "package gleaner\n\ncollect := {"))
	if !got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "ClusterPolicyModule m could not be checked in time; see its conditions") {
		t.Errorf("allowed: %t, warnings %q", got.Allowed, got.Warnings)
	}
}

func TestApply_WhatCannotBeDecodedIsAllowedWithAWarning(t *testing.T) {
	s := newServer(t, nil)
	if got := s.apply("Unknown", policysettest.Module("m", policysettest.KeepText)); !got.Allowed || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "Unknown m was not checked") {
		t.Errorf("allowed: %t, warnings %q", got.Allowed, got.Warnings)
	}
}

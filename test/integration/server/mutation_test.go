package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// deleteRequest is what a webhook receives about a DELETE.
type deleteRequest struct {
	Before, After string // names of the object before and after
	Policy        string
	Grace         int64
	UID           bool // has a precondition
	DryRun        bool
	User          string
}

func TestW01_Webhook_ReceivesTheObjectAndAllOptions(t *testing.T) {
	a := newAPI(t)
	var mu sync.Mutex // covers got
	got := map[deleteRequest]bool{}
	a.serveWebhook(func(_ context.Context, r *request) *metav1.Status {
		var before unstructured.Unstructured
		var options metav1.DeleteOptions
		if err := json.Unmarshal(r.Options.Raw, &options); err != nil {
			a.Error(err)
		}
		if err := before.UnmarshalJSON(r.OldObject.Raw); err != nil {
			a.Error(err)
		}
		one := deleteRequest{
			Before: before.GetName(), After: string(r.Object.Raw), Grace: ptr.Deref(options.GracePeriodSeconds, -1),
			Policy: string(ptr.Deref(options.PropagationPolicy, "")), UID: options.Preconditions != nil && options.Preconditions.UID != nil,
			DryRun: ptr.Deref(r.DryRun, false), User: r.UserInfo.Username,
		}
		mu.Lock()
		defer mu.Unlock()
		got[one] = true
		return nil
	})
	o := a.createNew(configMap)
	options := deleteOptions(orphanPolicy)
	options.GracePeriodSeconds, options.DryRun = ptr.To[int64](7), []string{metav1.DryRunAll}
	options.Preconditions = &metav1.Preconditions{UID: ptr.To(o.GetUID())}
	a.delete(configMap, o, options)
	a.delete(configMap, o, deleteOptions(""))
	me, err := kubernetes.NewForConfigOrDie(a.config).AuthenticationV1().SelfSubjectReviews().Create(a.Context(), selfReview(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := me.Status.UserInfo.Username
	want := map[deleteRequest]bool{
		{Before: o.GetName(), Policy: "Orphan", Grace: 7, UID: true, DryRun: true, User: user}: true,
		{Before: o.GetName(), Grace: -1, User: user}:                                           true,
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// W-01 for ValidatingAdmissionPolicies: this one refuses by the request's options.
func TestW01_AdmissionPolicy_ReceivesTheOptions(t *testing.T) {
	a := newAPI(t)
	a.applyRefusingPolicy(a.matchResource("configmaps", registrationv1.Delete), "!has(request.options.propagationPolicy) || request.options.propagationPolicy != 'Orphan' || "+
		"!('"+testFinalizer+"' in oldObject.metadata.?finalizers.orValue([]))")
	held, free := a.createNew(configMap, testFinalizer), a.createNew(configMap)
	devtest.Eventually(t, timeout, func() error { // it is in force
		options := deleteOptions(orphanPolicy)
		options.DryRun = []string{metav1.DryRunAll}
		if err := a.client(configMap).Delete(a.Context(), held.GetName(), options); !apierrors.IsInvalid(err) {
			return errNotYet
		}
		return nil
	})
	a.delete(configMap, free, deleteOptions(orphanPolicy))
	a.delete(configMap, held, deleteOptions(foregroundPolicy))
}

// matchResource matches a resource of the core group in the test's namespace.
func (a *api) matchResource(resource string, operations ...registrationv1.OperationType) *registrationv1.MatchResources {
	return &registrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": a.ns}},
		ResourceRules: []registrationv1.NamedRuleWithOperations{{RuleWithOperations: registrationv1.RuleWithOperations{
			Operations: operations, Rule: registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{resource}},
		}}},
	}
}

func TestW02_Webhook_CannotChangeADelete(t *testing.T) {
	a := newAPI(t)
	a.servePatchingWebhook(`[{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]`)
	o := a.createNew(configMap)
	devtest.Eventually(t, timeout, func() error { // it is called
		options := deleteOptions("")
		options.DryRun = []string{metav1.DryRunAll}
		if err := a.client(configMap).Delete(a.Context(), o.GetName(), options); !apierrors.IsInternalError(err) {
			return errNotYet
		}
		return nil
	})
	if err := a.client(configMap).Delete(a.Context(), o.GetName(), deleteOptions(orphanPolicy)); !apierrors.IsInternalError(err) {
		t.Errorf("got error %v", err)
	}
	a.expectFinalizers(configMap, o)
}

// servePatchingWebhook serves a mutating webhook that responds to every DELETE with a patch.
func (a *api) servePatchingWebhook(patch string) {
	a.Helper()
	certificate, ca, err := devtest.Shared(a).ServingCertificate()
	if err != nil {
		a.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			a.Error(err)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, Patch: []byte(patch), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch),
		}
		review.Request = nil
		if err := json.NewEncoder(w).Encode(review); err != nil {
			a.Error(err)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	a.Cleanup(server.Close)
	match := a.matchResource("configmaps", registrationv1.Delete)
	configurations := kubernetes.NewForConfigOrDie(a.config).AdmissionregistrationV1().MutatingWebhookConfigurations()
	made, err := configurations.Create(a.Context(), &registrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "w02-"},
		Webhooks: []registrationv1.MutatingWebhook{{
			Name: "w02.gleaner.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(registrationv1.SideEffectClassNone),
			ClientConfig:      registrationv1.WebhookClientConfig{URL: &server.URL, CABundle: ca},
			NamespaceSelector: match.NamespaceSelector, Rules: []registrationv1.RuleWithOperations{match.ResourceRules[0].RuleWithOperations},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		if err := configurations.Delete(a.cleanupContext(), made.Name, metav1.DeleteOptions{}); err != nil {
			a.Error(err)
		}
	})
}

// applyMutatingPolicy applies a MutatingAdmissionPolicy that adds a finalizer to ConfigMaps.
func (a *api) applyMutatingPolicy(finalizer string, operations ...registrationv1.OperationType) error {
	a.Helper()
	admission := kubernetes.NewForConfigOrDie(a.config).AdmissionregistrationV1()
	policy, err := admission.MutatingAdmissionPolicies().Create(a.Context(), &registrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "w03-"},
		Spec: registrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   a.matchResource("configmaps", operations...),
			ReinvocationPolicy: registrationv1.NeverReinvocationPolicy,
			MatchConditions: []registrationv1.MatchCondition{{
				Name: "alive", Expression: "object == null || !has(object.metadata.deletionTimestamp)",
			}},
			Mutations: []registrationv1.Mutation{{
				PatchType:          registrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &registrationv1.ApplyConfiguration{Expression: "Object{metadata: Object.metadata{finalizers: ['" + finalizer + "']}}"},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	binding, err := admission.MutatingAdmissionPolicyBindings().Create(a.Context(), &registrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "w03-"}, Spec: registrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		if err := admission.MutatingAdmissionPolicies().Delete(a.cleanupContext(), policy.Name, metav1.DeleteOptions{}); err != nil {
			a.Error(err)
		}
		if err := admission.MutatingAdmissionPolicyBindings().Delete(a.cleanupContext(), binding.Name, metav1.DeleteOptions{}); err != nil {
			a.Error(err)
		}
	})
	devtest.Eventually(a, timeout, func() error { // it is in force
		o, err := a.client(configMap).Create(a.Context(), object(configMap), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || !slices.Contains(o.GetFinalizers(), finalizer) {
			return errNotYet
		}
		return nil
	})
	return nil
}

func TestW03_MutatingAdmissionPolicy_DoesNotApplyToDeletes(t *testing.T) {
	a := newAPI(t)
	if err := a.applyMutatingPolicy(testFinalizer, registrationv1.Delete); !apierrors.IsInvalid(err) {
		t.Errorf("policy for DELETE: %v", err)
	}
	before := a.createNew(configMap)
	if err := a.applyMutatingPolicy(testFinalizer, registrationv1.OperationAll); err != nil {
		t.Fatal(err)
	}
	a.delete(configMap, before, deleteOptions(backgroundPolicy))
	if live := a.get(configMap, before); live != nil {
		t.Errorf("policy for all operations added finalizers on DELETE: %v", live.GetFinalizers())
	}
}

func TestW04_MutatingAdmissionPolicy_ProtectsAFinalizer(t *testing.T) {
	a := newAPI(t)
	if err := a.applyMutatingPolicy(testFinalizer, registrationv1.Create, registrationv1.Update); err != nil {
		t.Fatal(err)
	}
	o := a.createNew(configMap)
	if err := a.patch(configMap, o, map[string]any{"finalizers": nil}); err != nil {
		t.Fatal(err)
	}
	if got := a.get(configMap, o).GetFinalizers(); !slices.Equal(got, []string{testFinalizer}) {
		t.Errorf("finalizers of a live object could be removed: %v", got)
	}
	a.delete(configMap, o, deleteOptions(backgroundPolicy))
	if err := a.patch(configMap, o, map[string]any{"finalizers": nil}); err != nil {
		t.Fatal(err)
	}
	if a.get(configMap, o) != nil {
		t.Error("finalizer of a terminating object can't be removed")
	}
}

// Removing the last finalizer of a terminating object is an update for admission, and can be refused.
func TestW09_RemovingTheLastFinalizer_CanBeRefused(t *testing.T) {
	a := newAPI(t)
	a.serveWebhook(func(_ context.Context, r *request) *metav1.Status {
		if r.Operation == admissionv1.Update {
			return &metav1.Status{Code: http.StatusForbidden, Message: "refused"}
		}
		return nil
	}, registrationv1.Update)
	o := a.createNew(configMap, testFinalizer)
	a.delete(configMap, o, deleteOptions(backgroundPolicy))
	if err := a.patch(configMap, o, map[string]any{"finalizers": nil}); !apierrors.IsForbidden(err) {
		t.Errorf("got error %v", err)
	}
	if live := a.get(configMap, o); live == nil || !slices.Equal(live.GetFinalizers(), []string{testFinalizer}) {
		t.Errorf("object is now %v", live)
	}
}

package server

import (
	"errors"
	"testing"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// errNotYet is the error of a condition that a test waits for.
var errNotYet = errors.New("not yet")

func selfReview() *authenticationv1.SelfSubjectReview { return &authenticationv1.SelfSubjectReview{} }

// Objects that no policy allows to delete are deleted with their definition; only finalizers keep them.
func TestA12_CRDDeletion_DeletesObjectsWithoutAdmission(t *testing.T) {
	a := newAPI(t)
	k := a.createType()
	match := a.matchResource(k.Resource, registrationv1.Delete)
	match.ResourceRules[0].APIGroups = []string{k.Group}
	a.applyRefusingPolicy(match, "false")
	free, held := a.createNew(k), a.createNew(k, testFinalizer)
	devtest.Eventually(t, timeout, func() error { // deletion is forbidden
		options := deleteOptions("")
		options.DryRun = []string{metav1.DryRunAll}
		if err := a.client(k).Delete(a.Context(), free.GetName(), options); !apierrors.IsInvalid(err) {
			return errNotYet
		}
		return nil
	})
	crds := apiextensions.NewForConfigOrDie(a.config).ApiextensionsV1().CustomResourceDefinitions()
	if err := crds.Delete(a.Context(), k.Resource+"."+k.Group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() error {
		if a.get(k, free) != nil {
			return errNotYet
		}
		return nil
	})
	last := a.get(k, held)
	if last == nil || last.GetDeletionTimestamp() == nil {
		t.Fatalf("object with a finalizer is now %v", last)
	}
	a.expectFinalizers(k, held) // no deletion finalizers were added
	if err := a.patch(k, held, map[string]any{"finalizers": nil}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() error {
		_, err := crds.Get(a.Context(), k.Resource+"."+k.Group, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errNotYet
		}
		return nil
	})
}

// applyRefusingPolicy applies a ValidatingAdmissionPolicy that refuses requests unless an expression is true.
func (a *api) applyRefusingPolicy(match *registrationv1.MatchResources, unless string) {
	a.Helper()
	admission := kubernetes.NewForConfigOrDie(a.config).AdmissionregistrationV1()
	policy, err := admission.ValidatingAdmissionPolicies().Create(a.Context(), &registrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "a12-"},
		Spec: registrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match, Validations: []registrationv1.Validation{{Expression: unless}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	binding, err := admission.ValidatingAdmissionPolicyBindings().Create(a.Context(), &registrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "a12-"},
		Spec: registrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []registrationv1.ValidationAction{registrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		if err := errors.Join(admission.ValidatingAdmissionPolicies().Delete(a.cleanupContext(), policy.Name, metav1.DeleteOptions{}),
			admission.ValidatingAdmissionPolicyBindings().Delete(a.cleanupContext(), binding.Name, metav1.DeleteOptions{})); err != nil {
			a.Error(err)
		}
	})
}

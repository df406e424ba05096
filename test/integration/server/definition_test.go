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

// errNotYet is what a test waits to be over.
var errNotYet = errors.New("not yet")

func selfReview() *authenticationv1.SelfSubjectReview { return &authenticationv1.SelfSubjectReview{} }

// What nobody may delete goes with its definition all the same, and only finalizers hold it.
func TestA12_ADefinitionTakesItsObjectsAlongWithoutAdmission(t *testing.T) {
	a := newAPI(t)
	k := a.define()
	match := a.matching(k.Resource, registrationv1.Delete)
	match.ResourceRules[0].APIGroups = []string{k.Group}
	a.refuses(match, "false")
	free, held := a.make(k), a.make(k, hold)
	devtest.Eventually(t, patience, func() error { // nobody may delete one
		options := by("")
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
	devtest.Eventually(t, patience, func() error {
		if a.get(k, free) != nil {
			return errNotYet
		}
		return nil
	})
	last := a.get(k, held)
	if last == nil || last.GetDeletionTimestamp() == nil {
		t.Fatalf("what is held is now %v", last)
	}
	a.finalizers(k, held) // no policy has left one of its own
	if err := a.patch(k, held, map[string]any{"finalizers": nil}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, patience, func() error {
		_, err := crds.Get(a.Context(), k.Resource+"."+k.Group, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errNotYet
		}
		return nil
	})
}

// refuses has a ValidatingAdmissionPolicy refuse what does not pass an expression.
func (a *api) refuses(match *registrationv1.MatchResources, unless string) {
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
		if err := errors.Join(admission.ValidatingAdmissionPolicies().Delete(a.afterwards(), policy.Name, metav1.DeleteOptions{}),
			admission.ValidatingAdmissionPolicyBindings().Delete(a.afterwards(), binding.Name, metav1.DeleteOptions{})); err != nil {
			a.Error(err)
		}
	})
}

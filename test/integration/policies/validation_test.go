package policies

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedadmissionv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/validation"
)

// createValidation creates the configuration of the webhook, as the manifests do.
func (o *dedicatedEnv) createValidation() {
	o.Helper()
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: validation.ConfigurationName}}
	if _, err := o.configurations().Create(o.Context(), configuration, metav1.CreateOptions{}); err != nil {
		o.Fatal(err)
	}
}

func (o *dedicatedEnv) deleteValidation() {
	o.Helper()
	if err := o.configurations().Delete(o.Context(), validation.ConfigurationName, metav1.DeleteOptions{}); err != nil {
		o.Fatal(err)
	}
}

func (o *dedicatedEnv) configurations() typedadmissionv1.ValidatingWebhookConfigurationInterface {
	return kubernetes.NewForConfigOrDie(o.cluster.RESTConfig()).AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

// wantRejected applies a resource until the webhook, which is called once the API server knows it, rejects it.
func (w *env) wantRejected(text, message string) {
	w.Helper()
	w.eventually(func() error {
		o, err := w.tryApply(text)
		if err == nil {
			w.forceDelete(o)
			return errorf("it is not rejected:\n%s", text)
		}
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), message) {
			w.Fatalf("it is rejected with %v, want %q", err, message)
		}
		return nil
	})
}

func TestApply_InvalidResourcesAreRejected(t *testing.T) {
	o := newDedicatedEnvOn(t, devcluster.Options{})
	o.createValidation()
	o.startOperator()
	const broken = "\nspec: {rego: {inline: \"package gleaner\\n\\ncollect := {\"}}"
	o.wantRejected("kind: ClusterPolicyModule\nmetadata: {name: broken}"+broken, "ClusterPolicyModule broken: it does not compile: ")
	o.wantRejected("kind: PolicyModule\nmetadata: {name: broken}"+broken, "PolicyModule "+o.ns+"/broken: it does not compile: ")

	module := o.applyPolicy("kind: ClusterPolicyModule\nmetadata: {name: sizes}\nspec: {rego: {inline: " + quoteJSON(`package gleaner

validate := {"decision": "Valid"} if input.policy.settings.size > 0

validate := {"decision": "Invalid", "reason": "size has to be positive"} if not input.policy.settings.size > 0

collect := {"decision": "Orphan"}
`) + "}}")
	o.waitForCondition(module, "Compiled", metav1.ConditionTrue, "Compiled", "")
	policy := func(name, rest string) string {
		return "kind: ClusterGCPolicy\nmetadata: {name: " + name + "}\nspec:" + selectingPolicy + "\n  " + rest
	}
	o.wantRejected(policy("settings", "module: {name: sizes}\n  settings: {size: -1}"), "the module refuses settings: size has to be positive")
	o.wantRejected(policy("hooks", "module: {name: sizes}\n  settings: {size: 1}\n  hooks: [propagate]"), "does not answer propagate")
	o.wantRejected(policy("condition", "fixed: {collect: {decision: Orphan}}\n  matchConditions: [{name: c, expression: object.}]"), "ClusterGCPolicy condition: ")

	p := o.applyPolicy(policy("valid", "module: {name: sizes}\n  settings: {size: 1}"))
	o.waitForCondition(p, "ModuleReady", metav1.ConditionTrue, "Ready", "")
	if err := o.tryPatch(p, `{"spec": {"settings": {"size": -1}}}`); !apierrors.IsInvalid(err) {
		t.Errorf("an update with invalid settings: %v, want it rejected", err)
	}
	later := o.applyPolicy(policy("later", "module: {name: later}"))
	o.waitForCondition(later, "ModuleReady", metav1.ConditionFalse, "NotFound", "")

	o.deleteValidation()
	o.eventually(func() error { // as without webhooks, status reports it
		_, err := o.tryApply("kind: ClusterPolicyModule\nmetadata: {name: broken}" + broken)
		return err
	})
	o.patch(p, `{"spec": {"settings": {"size": -1}}}`)
	o.waitForCondition(p, "Accepted", metav1.ConditionFalse, "SettingsRefused", "")
	o.createValidation()
	o.stopOperator()
	o.startOperator()
	o.wantRejected("kind: ClusterPolicyModule\nmetadata: {name: another}"+broken, "it does not compile")
	o.patch(p, `{"metadata": {"labels": {"a": "b"}}}`) // it is stored, and only its spec is checked
}

func TestApply_IsPossibleWhileTheWebhookIsNotReached(t *testing.T) {
	o := newDedicatedEnvOn(t, devcluster.Options{})
	o.createValidation()
	o.startOperator()
	const text = "kind: ClusterPolicyModule\nmetadata: {name: broken}\nspec: {rego: {inline: \"package gleaner\\n\\ncollect := {\"}}"
	o.wantRejected(text, "it does not compile")
	o.stopOperator()
	if _, err := o.tryApply(text); err != nil {
		t.Errorf("without an operator: %v, want it stored", err)
	}
}

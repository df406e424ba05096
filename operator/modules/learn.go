package modules

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CanaryPath is where the webhook is served that hears of canaries.
const CanaryPath = "/canary"

// heardAnnotation is on the webhook's configuration, and says whom the other collector
// was last seen to work as. Any replica may be the one that hears it, and the next
// operator has to know it before it has heard anything.
const heardAnnotation = "gleaner.dev/collector-user"

// canaryAnnotation is the UID of the canary that the user of heardAnnotation finished.
const canaryAnnotation = "gleaner.dev/collector-canary"

// finished is true of the update by which a collector ends the foreground deletion of a
// canary.
const finished = "has(oldObject.metadata.finalizers) && 'foregroundDeletion' in oldObject.metadata.finalizers && " +
	"(!has(object.metadata.finalizers) || !('foregroundDeletion' in object.metadata.finalizers))"

// overhears is the webhook that tells who finishes canaries.
func (v *Veto) overhears(namespace, gleaner string) admissionv1.ValidatingWebhook {
	return admissionv1.ValidatingWebhook{
		Name: "canary" + vetoSuffix, ClientConfig: v.at(CanaryPath), FailurePolicy: ptr.To(admissionv1.Ignore),
		MatchPolicy: ptr.To(admissionv1.Equivalent), SideEffects: ptr.To(admissionv1.SideEffectClassNoneOnDryRun),
		TimeoutSeconds: ptr.To[int32](vetoSeconds), AdmissionReviewVersions: []string{"v1"},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"configmaps"}, Scope: ptr.To(admissionv1.NamespacedScope),
			},
		}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{v.Canary: "true"}},
		MatchConditions: []admissionv1.MatchCondition{
			{Name: "gleaner.dev/not-by-gleaner", Expression: fmt.Sprintf("request.userInfo.username != %q", gleaner)},
			{Name: "gleaner.dev/finished", Expression: finished},
		},
	}
}

// CollectorUser is whom the other collector is taken to work as.
func (k *Keeper) CollectorUser() string {
	v := k.options.Veto
	if v == nil {
		return ""
	}
	if heard := k.Heard(); !v.Given && isSystem(heard) {
		return heard
	}
	return v.User
}

// isSystem reports whether a user may be taken for the other collector unasked.
func isSystem(user string) bool { return strings.HasPrefix(user, "system:") }

// Heard is whom the other collector was last seen to work as; "" if it has not been.
func (k *Keeper) Heard() string { return ptr.Deref(k.heard.Load(), "") }

// Mistaken is why the other collector is not the one that is asked about: it shows that
// it is another than somebody has said. It is nil if it is not so.
func (k *Keeper) Mistaken() error {
	v, heard := k.options.Veto, k.Heard()
	switch {
	case v == nil || heard == "" || heard == k.CollectorUser():
		return nil
	case !isSystem(heard):
		return fmt.Errorf("the other collector seems to work as %s, which is no user of the system, so Gleaner is asked about what %s deletes: "+
			"if it is the other collector, run Gleaner with --collector-user=%s", heard, v.User, heard)
	}
	return fmt.Errorf("the other collector works as %s, and Gleaner was told that it is %s: run it with --collector-user=%s, or without that flag", heard, v.User, heard)
}

// Finished notes who has finished a canary, where every replica finds it. It has
// happened when it returns.
func (k *Keeper) Finished(ctx context.Context, user string, canary types.UID) {
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: VetoName}}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		heardAnnotation: user, canaryAnnotation: string(canary),
	}}})
	if err == nil {
		err = k.client.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
	}
	if a := configuration.Annotations; err == nil && (a[heardAnnotation] != user || a[canaryAnnotation] != string(canary)) {
		err = k.client.Patch(ctx, configuration, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		k.options.Log.Error(err, "Could not note who the other collector is", "user", user)
	}
}

// Listen has a look taken at whom the other collector has been seen to work as.
func (k *Keeper) Listen() { k.poke() }

// learn reads whom the other collector was seen to work as.
func (k *Keeper) learn(ctx context.Context) error {
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: VetoName}}
	err := k.client.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read who the other collector is: %w", err)
	}
	now, before := configuration.Annotations[heardAnnotation], k.CollectorUser()
	if now == "" || now == k.Heard() {
		return nil
	}
	k.heard.Store(&now)
	if err := k.Mistaken(); err != nil {
		k.options.Log.Error(err, "The other collector is not kept from anything")
	} else if now != before {
		k.options.Log.Info("The other collector works as another user than was assumed: asking about what that one deletes", "user", now, "assumed", before)
	}
	return nil
}

// note keeps what was learnt when the configuration is made anew.
func (k *Keeper) note(configuration *admissionv1.ValidatingWebhookConfiguration) {
	heard := k.Heard()
	if heard == "" || configuration.Annotations[heardAnnotation] != "" {
		return
	}
	if configuration.Annotations == nil {
		configuration.Annotations = map[string]string{}
	}
	configuration.Annotations[heardAnnotation] = heard
}

package companion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CanaryPath is the path of the webhook that is called when a canary is finalized.
const CanaryPath = "/canary"

const (
	// userAnnotation is on the webhook configuration and holds the user name by which the
	// built-in collector was discovered. Any replica may be called when a canary is
	// finalized, and the next leader needs to know before that.
	userAnnotation = "gleaner.dev/collector-user"

	// canaryAnnotation is the UID of the canary that this user finalized.
	canaryAnnotation = "gleaner.dev/collector-canary"

	// finalized matches the update by which a collector ends the foreground deletion of a
	// canary.
	finalized = "has(oldObject.metadata.finalizers) && 'foregroundDeletion' in oldObject.metadata.finalizers && " +
		"(!has(object.metadata.finalizers) || !('foregroundDeletion' in object.metadata.finalizers))"

	// verifyInterval is how often Verify looks for what a replica has recorded.
	verifyInterval = 100 * time.Millisecond
)

// canaryWebhook returns the webhook that is called when another user than Gleaner
// finalizes a canary; ok is false until there is a certificate.
func (c *Companion) canaryWebhook(gleaner string) (w admissionv1.ValidatingWebhook, ok bool) {
	config, ok := c.options.Endpoint.At(CanaryPath)
	return admissionv1.ValidatingWebhook{
		Name: "canary" + webhookSuffix, ClientConfig: config, FailurePolicy: ptr.To(admissionv1.Ignore),
		MatchPolicy: ptr.To(admissionv1.Equivalent), SideEffects: ptr.To(admissionv1.SideEffectClassNoneOnDryRun),
		TimeoutSeconds: ptr.To[int32](webhookTimeout), AdmissionReviewVersions: []string{"v1"},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"configmaps"}, Scope: ptr.To(admissionv1.NamespacedScope),
			},
		}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.options.Objects.Namespace()}},
		ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{c.options.CanaryLabel: "true"}},
		MatchConditions: []admissionv1.MatchCondition{
			{Name: "gleaner.dev/not-by-gleaner", Expression: fmt.Sprintf("request.userInfo.username != %q", gleaner)},
			{Name: "gleaner.dev/finished", Expression: finalized},
		},
	}, ok
}

// CollectorUser returns the user name that the built-in collector is taken to have.
func (c *Companion) CollectorUser() string {
	if discovered := c.Discovered(); !c.options.Collector.Given && isSystem(discovered) {
		return discovered
	}
	return c.options.Collector.User
}

// isSystem reports whether a user can be the built-in collector although no flag names it.
func isSystem(user string) bool { return strings.HasPrefix(user, "system:") }

// Discovered returns the user name by which a canary was finalized last; "" if none was.
func (c *Companion) Discovered() string { return ptr.Deref(c.discovered.Load(), "") }

// Mismatch returns an error if the collector's user was discovered to be another than the
// webhook is installed for.
func (c *Companion) Mismatch() error {
	discovered := c.Discovered()
	switch {
	case discovered == "" || discovered == c.CollectorUser():
		return nil
	case !isSystem(discovered):
		return fmt.Errorf("a canary was finalized by %s, which is not a system user, so the webhook is called for deletes by %s: "+
			"if it is the garbage collector, run Gleaner with --collector-user=%s", discovered, c.options.Collector.User, discovered)
	}
	return fmt.Errorf("the built-in garbage collector works as %s, and --collector-user is %s: use --collector-user=%s, or remove that flag",
		discovered, c.options.Collector.User, discovered)
}

// CanaryFinalized records which user has finalized a canary, where every replica finds it.
// That is done when it returns; a failure is logged.
func (c *Companion) CanaryFinalized(ctx context.Context, user string, canary types.UID) {
	configuration, err := c.configuration(ctx)
	body, marshalErr := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		userAnnotation: user, canaryAnnotation: string(canary),
	}}})
	if err == nil {
		err = marshalErr
	}
	if a := configuration.Annotations; err == nil && (a[userAnnotation] != user || a[canaryAnnotation] != string(canary)) {
		err = c.options.Objects.Client().Patch(ctx, configuration, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		c.options.Log.Error(err, "Could not record the user of the built-in garbage collector", "user", user)
	}
}

// configuration reads the webhook configuration.
func (c *Companion) configuration(ctx context.Context) (*admissionv1.ValidatingWebhookConfiguration, error) {
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName}}
	return configuration, c.options.Objects.Client().Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
}

// Rediscover has the collector's user read again soon.
func (c *Companion) Rediscover() { c.observed.Store(struct{}{}) }

// discover reads the user of the built-in collector, if a replica has recorded it.
func (c *Companion) discover(ctx context.Context) error {
	configuration, err := c.configuration(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the user of the built-in garbage collector: %w", err)
	}
	now, before := configuration.Annotations[userAnnotation], c.CollectorUser()
	if now == "" || now == c.Discovered() {
		return nil
	}
	c.discovered.Store(&now)
	if err := c.Mismatch(); err != nil {
		c.options.Log.Error(err, "Policies are not enforced on what the built-in garbage collector deletes")
	} else if now != before {
		c.options.Log.Info("Discovered the user of the built-in garbage collector", "user", now, "assumed", before)
	}
	return nil
}

// annotate keeps the discovered user when the configuration is created again.
func (c *Companion) annotate(configuration *admissionv1.ValidatingWebhookConfiguration) {
	discovered := c.Discovered()
	if discovered == "" || configuration.Annotations[userAnnotation] != "" {
		return
	}
	if configuration.Annotations == nil {
		configuration.Annotations = map[string]string{}
	}
	configuration.Annotations[userAnnotation] = discovered
}

// verification is what the last canary has shown: that all is well, or an error.
type verification struct{ err error }

var (
	errNoWebhook = errors.New("no webhook is configured")

	// errNotInstalled passes by itself: the webhook is installed for the discovered user,
	// and then another canary is created.
	errNotInstalled = errors.New("the user of the built-in garbage collector was discovered, and the webhook is not installed for it yet")
)

// Verify finds out whether the API server has called the webhook about a canary that the
// built-in collector has finalized, until ctx ends. Without a webhook nothing is found out.
func (c *Companion) Verify(ctx context.Context, canary types.UID) {
	err := c.awaitCanary(ctx, canary)
	if errors.Is(err, errNoWebhook) {
		return
	}
	c.verification.Store(&verification{err: err})
	c.observed.Store(struct{}{})
}

// IsVerified reports whether the webhook was seen to be called about what the built-in
// collector does: for the last canary or, before the first, for one of an earlier leader.
func (c *Companion) IsVerified() bool {
	if v := c.verification.Load(); v != nil {
		return v.err == nil && c.Mismatch() == nil
	}
	return c.Discovered() != "" && c.Mismatch() == nil
}

// IsRefuted reports whether the last canary has shown that the webhook is not called.
func (c *Companion) IsRefuted() bool { return c.verification.Load() != nil && !c.IsVerified() }

// Unverified returns why the webhook was not seen to be called, "" if it was, and whether
// waiting won't change that.
func (c *Companion) Unverified() (why string, final bool) {
	v := c.verification.Load()
	switch {
	case c.IsVerified():
		return "", false
	case v != nil && v.err != nil && !errors.Is(v.err, errNotInstalled):
		return v.err.Error(), true
	case c.options.NoCanary:
		return "with --canary-timeout=0, it is not checked whether the API server calls Gleaner's webhook", true
	default:
		return "no canary has shown it yet", false
	}
}

func (c *Companion) awaitCanary(ctx context.Context, canary types.UID) error {
	tick := time.NewTicker(verifyInterval)
	defer tick.Stop()
	for {
		configuration, err := c.configuration(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return errNoWebhook
		case err == nil && configuration.Annotations[canaryAnnotation] == string(canary):
			if user := c.CollectorUser(); configuration.Annotations[userAnnotation] != user || !isFor(configuration, user) {
				return errNotInstalled
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the built-in garbage collector has finalized a canary, and the API server has called no replica about it: it does not reach the "+
				"webhook, or the collector works as Gleaner's own user; it is taken to be %s", c.CollectorUser())
		case <-tick.C:
		}
	}
}

// isFor reports whether a configuration calls the webhook about deletes by a user.
func isFor(configuration *admissionv1.ValidatingWebhookConfiguration, user string) bool {
	for _, w := range configuration.Webhooks {
		for _, condition := range w.MatchConditions {
			if condition.Name == collectorCondition && strings.Contains(condition.Expression, strconv.Quote(user)) {
				return true
			}
		}
	}
	return false
}

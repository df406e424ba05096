package validation

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

const (
	// ConfigurationName is the name of the ValidatingWebhookConfiguration.
	ConfigurationName = "gleaner-validation"

	// Path is the path of the webhook.
	Path = "/validation"

	webhookName = "validation.gleaner.dev"

	// webhookTimeout in seconds is longer than a validation takes, with the time that it waits for a slot.
	webhookTimeout = 10
)

// validated are the resources that are validated.
var validated = []string{
	"archivepolicies", "clusterarchivepolicies", "clusterfinalizers", "clustergcpolicies", "clusterpolicymodules", "clusterretentionpolicies",
	"finalizers", "gcpolicies", "policymodules", "retentionpolicies",
}

// InstallerOptions configure an Installer.
type InstallerOptions struct {
	Objects   *admission.Objects
	Snapshots *policyset.Publisher
	Gate      *gate.Gate        // only the leader installs
	Webhook   *webhook.Endpoint // nil: Gleaner serves no webhooks, and nothing is installed
	Disabled  bool              // the webhook is removed
	Now       func() time.Time
	Log       logr.Logger
}

// Installer installs the webhook. Create it with NewInstaller.
type Installer struct {
	*admission.Loop

	options InstallerOptions
}

// NewInstaller returns an Installer.
func NewInstaller(o InstallerOptions) *Installer {
	i := &Installer{options: o}
	i.Loop = admission.NewLoop(admission.LoopOptions{
		Snapshots: o.Snapshots, Gate: o.Gate, Webhook: o.Webhook, Resync: admission.ResyncInterval, Now: o.Now, Log: o.Log,
		Failure: "The webhook that validates resources is not installed",
	}, i)
	return i
}

// Inputs implements admission.Installation.
func (i *Installer) Inputs(*policyset.Snapshot) string { return "" }

// Install implements admission.Installation.
func (i *Installer) Install(ctx context.Context, _ *policyset.Snapshot) admission.Failures {
	if err := i.install(ctx); err != nil {
		return admission.Failures{ConfigurationName: err}
	}
	return nil
}

func (i *Installer) install(ctx context.Context) error {
	objects := i.options.Objects
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName}}
	if i.options.Webhook == nil || i.options.Disabled {
		return objects.Remove(ctx, configuration)
	}
	config, ok := i.options.Webhook.At(Path)
	if !ok {
		return admission.ErrNoCertificate
	}
	return objects.Ensure(ctx, configuration, func() {
		configuration.Webhooks = []admissionv1.ValidatingWebhook{webhookOf(config, objects.ExemptNamespaces())}
	})
}

// webhookOf returns the webhook. It is not called about changes of metadata and status, which must always be possible.
// Fields that the API server would default are set, so that nothing differs when nothing has changed.
func webhookOf(config admissionv1.WebhookClientConfig, exempt metav1.LabelSelectorRequirement) admissionv1.ValidatingWebhook {
	return admissionv1.ValidatingWebhook{
		Name: webhookName, ClientConfig: config, FailurePolicy: ptr.To(admissionv1.Ignore), MatchPolicy: ptr.To(admissionv1.Equivalent),
		SideEffects: ptr.To(admissionv1.SideEffectClassNone), TimeoutSeconds: ptr.To[int32](webhookTimeout), AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{exempt}}, ObjectSelector: &metav1.LabelSelector{},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{v1alpha1.GroupVersion.Version}, Resources: validated, Scope: ptr.To(admissionv1.AllScopes),
			},
		}},
		MatchConditions: []admissionv1.MatchCondition{
			{Name: "gleaner.dev/spec-changed", Expression: "oldObject == null || object.spec != oldObject.spec"},
			{Name: "gleaner.dev/not-being-deleted", Expression: "!has(object.metadata.deletionTimestamp)"},
		},
	}
}

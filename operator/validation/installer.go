package validation

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

	// resync is the interval at which the configuration is looked at again: it may have been created or applied.
	resync = time.Minute

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
	Webhook   *webhook.Endpoint // nil: Gleaner serves no webhooks
	Now       func() time.Time
	Log       logr.Logger
}

// Installer adds the webhook to its configuration, if that exists. It is created with what else is installed, so that it is
// removed with that: when Gleaner is removed as the only garbage collector, none collects what it has created.
type Installer struct {
	*admission.Loop

	options InstallerOptions
}

// NewInstaller returns an Installer.
func NewInstaller(o InstallerOptions) *Installer {
	i := &Installer{options: o}
	i.Loop = admission.NewLoop(admission.LoopOptions{
		Snapshots: o.Snapshots, Gate: o.Gate, Webhook: o.Webhook, Resync: resync, Now: o.Now, Log: o.Log,
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
	objects, configuration := i.options.Objects, &admissionv1.ValidatingWebhookConfiguration{}
	err := objects.Client().Get(ctx, client.ObjectKey{Name: ConfigurationName}, configuration)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read webhook configuration %s: %w", ConfigurationName, err)
	}
	var webhooks []admissionv1.ValidatingWebhook
	if i.options.Webhook != nil {
		config, ok := i.options.Webhook.At(Path)
		if !ok {
			return admission.ErrNoCertificate
		}
		webhooks = append(webhooks, webhookOf(config, objects.ExemptNamespaces()))
	}
	if equality.Semantic.DeepEqual(configuration.Webhooks, webhooks) {
		return nil
	}
	configuration.Webhooks = webhooks
	if err := objects.Client().Update(ctx, configuration); err != nil {
		return fmt.Errorf("update webhook configuration %s: %w", ConfigurationName, err)
	}
	return nil
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

package run

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/companion"
	companionreviewer "github.com/gleaner-dev/gleaner/operator/companion/reviewer"
	"github.com/gleaner-dev/gleaner/operator/graceperiod"
	"github.com/gleaner-dev/gleaner/operator/modulestore/fetch"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/protect"
	"github.com/gleaner-dev/gleaner/operator/protect/reviewer"
	"github.com/gleaner-dev/gleaner/operator/validation"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// Webhooks serves the webhooks that the API server calls.
func (op *Operator) Webhooks() http.Handler { return op.webhooks }

// connectAdmission creates what has the API server add finalizers.
func (op *Operator) connectAdmission(objects *admission.Objects) *admission.Installer {
	op.webhooks.Handle("POST "+admission.Path+"{name}", admission.AttachHandler(func(name string) (string, bool) {
		return admission.FinalizerOf(op.snapshots.Current(), name)
	}))
	return admission.New(admission.Options{
		Objects: objects, Snapshots: op.snapshots, Gate: &op.gate, Webhook: op.options.Webhook, Serves: view{op}.serves, Now: op.now, Log: op.log.WithName("policies"),
	})
}

// connectProtection creates what protects objects from users' requests to delete them.
func (op *Operator) connectProtection(objects *admission.Objects) *protect.Installer {
	op.webhooks.Handle("POST "+protect.Path, reviewer.New(reviewer.Options{
		Evaluator: op.collector.Decider.Evaluator, Policies: op.snapshots.Policies, Covers: op.snapshots.Covers, Types: op.types,
		Graph: op.store, Recorder: op.recorder,
	}).Handler())
	o := protect.Options{
		Objects: objects, Snapshots: op.snapshots, Gate: &op.gate, Webhook: op.options.Webhook, Versions: view{op}.versionOf, Now: op.now, Log: op.log.WithName("protect"),
	}
	if op.options.Companion {
		o.Collector = func() string { return op.companion.CollectorUser() }
	}
	return protect.New(o)
}

// connectGracePeriods creates what stores the grace periods of requests.
func (op *Operator) connectGracePeriods(objects *admission.Objects, client metadata.Interface) *graceperiod.Installer {
	writes := writer.Writer{Steps: op.steps(), DryRun: op.options.DryRun}
	op.webhooks.Handle("POST "+graceperiod.Path, graceperiod.NewAnnotator(client, writes, op.keys.Keys).Handler())
	return graceperiod.New(graceperiod.Options{
		Objects: objects, Snapshots: op.snapshots, Gate: &op.gate, Webhook: op.options.Webhook, Now: op.now, Log: op.log.WithName("policies"),
	})
}

// connectValidation creates what rejects invalid policies, finalizers and modules when they are applied.
func (op *Operator) connectValidation() error {
	builder, err := policyset.NewBuilder(op.rules(), op.archiving.handler())
	if err != nil {
		return err
	}
	handler, err := validation.New(validation.Options{Builder: builder, Current: op.snapshots.Current, Modules: op.modules.Store, CheckSigners: fetch.CheckSigners}).Handler()
	if err != nil {
		return err
	}
	op.webhooks.Handle("POST "+validation.Path, handler)
	return nil
}

// validationInstaller returns what has the API server call that.
func (op *Operator) validationInstaller(objects *admission.Objects) *validation.Installer {
	return validation.NewInstaller(validation.InstallerOptions{
		Objects: objects, Snapshots: op.snapshots, Gate: &op.gate, Webhook: op.options.Webhook,
		Now: op.now, Log: op.log.WithName("validation"),
	})
}

// serveCompanion serves the webhooks of companion mode.
func (op *Operator) serveCompanion(r *companionreviewer.Reviewer) {
	op.webhooks.Handle("POST "+companion.CanaryPath, companion.CanaryHandler(func(ctx context.Context, user string, object types.UID) {
		ctx, cancel := context.WithTimeout(ctx, companionreviewer.Timeout)
		defer cancel()
		op.companion.CanaryFinalized(ctx, user, object)
	}))
	op.webhooks.Handle("/", r.Handler())
}

package run

import (
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/protect"
	"github.com/gleaner-dev/gleaner/operator/protect/reviewer"
)

// connectProtection creates what protects objects from users' requests to delete them.
func (op *Operator) connectProtection(objects *admission.Objects) *protect.Installer {
	log := op.log.WithName("protect")
	op.protecting = reviewer.New(reviewer.Options{
		Evaluator: op.collector.Decider.Evaluator, Policies: op.snapshots.Policies, Covers: op.snapshots.Covers, Types: op.types,
		Graph: op.store, Recorder: op.recorder,
	})
	o := protect.Options{Objects: objects, Snapshots: op.snapshots, Gate: &op.gate, Webhook: op.options.Webhook, Versions: view{op}.versionOf, Now: op.now, Log: log}
	if op.options.Companion {
		o.Collector = func() string { return op.companion.CollectorUser() }
	}
	return protect.New(o)
}

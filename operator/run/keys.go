package run

import "github.com/gleaner-dev/gleaner/operator/keystore"

// connectKeys creates the store of the keys that sign and verify state annotations.
func (op *Operator) connectKeys() {
	op.keys = keystore.New(keystore.Options{
		Client: op.client, Namespace: op.options.Namespace, OnChange: op.keysChanged, Log: op.log.WithName("state"),
		IsLeader: func() bool { return op.store.IsLeading() && !op.options.DryRun },
	})
}

// keysChanged queues what was kept because its state could not be verified.
func (op *Operator) keysChanged() {
	op.store.Sweep()
	if op.finalizers != nil {
		op.finalizers.Retry()
	}
}

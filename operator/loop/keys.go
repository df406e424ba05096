package loop

import "github.com/gleaner-dev/gleaner/operator/keystore"

// signState has state annotations signed and verified with the keys in the Secret.
func (l *Loop) signState() {
	l.keys = keystore.New(keystore.Options{
		Client: l.client, Namespace: l.options.Namespace, OnChange: l.keysChanged, Log: l.log.WithName("state"),
		Leads: func() bool { return l.known.leads() && !l.options.DryRun },
	})
	l.stateKeys = l.keys.Keys
}

// keysChanged looks again at what was kept since its state could not be verified.
func (l *Loop) keysChanged() {
	l.known.sweep()
	if l.finalizers != nil {
		l.finalizers.Retry()
	}
}

func (l *Loop) hasKeys() bool {
	_, err := l.stateKeys()
	return err == nil
}

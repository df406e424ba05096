package finalizers

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// deletes has the module delete a Secret, and returns the deletions that the steps have seen, and how they have ended.
func (w *testEnv) deletes(target hostabi.Target, result hostabi.Result) (asked []string, settled []writer.Settlement) {
	w.Helper()
	w.execute = func(hostabi.Intent) hostabi.Result { return result }
	w.module.respond = func(r hostabi.Request) (hostabi.Verdict, error) {
		if r.Round > 1 {
			return waitVerdict, nil
		}
		return hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: []hostabi.Intent{{ID: "a", Delete: &hostabi.DeleteIntent{Target: target, UID: "secret"}}}}, nil
	}
	w.reconcile(w.createPending())
	return slices.DeleteFunc(w.writes, func(text string) bool { return !strings.HasPrefix(text, "finalizers: deletes ") }), w.settled
}

func target(namespace, name string) hostabi.Target {
	return hostabi.Target{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: name}
}

func watchedSecret() map[types.UID]graph.Object {
	return map[types.UID]graph.Object{"secret": {
		UID: "secret", ResourceVersion: "1", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Namespace: "other", Name: "secret",
	}}
}

// A module must not use up the budgets of other namespaces, nor have their objects archived.
func TestDelete_CountsOnlyIfItIsGrantedAndNamesTheObject(t *testing.T) {
	for name, c := range map[string]struct {
		granted bool
		target  hostabi.Target
		want    []string
	}{
		"granted":                      {true, target("other", "secret"), []string{"finalizers: deletes Secret secret"}},
		"not granted":                  {false, target("other", "secret"), nil},
		"the UID of another object":    {true, target("other", "another"), nil},
		"the UID of another namespace": {true, target("ns", "secret"), nil},
		"the UID of another kind":      {true, hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "other", Name: "secret"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			w.granted, w.watched = c.granted, watchedSecret()
			if asked, _ := w.deletes(c.target, hostabi.Result{}); len(asked) != len(c.want) {
				t.Errorf("counted %v, want %v", asked, c.want)
			}
		})
	}
}

// A deletion that was refused has changed nothing; of one without a response, that is not known.
func TestDelete_EndsAsItsResultSays(t *testing.T) {
	for reason, want := range map[hostabi.ErrorReason]writer.Settlement{
		"":                       {Sent: true, Result: act.Done},
		hostabi.ErrorNotFound:    {Sent: true, Result: act.AlreadyGone},
		hostabi.ErrorForbidden:   {Sent: true, Result: act.Changed},
		hostabi.ErrorConflict:    {Sent: true, Result: act.Changed},
		hostabi.ErrorUnavailable: {Sent: true, Result: act.Failed, Err: cmpopts.AnyError},
	} {
		t.Run(string(reason), func(t *testing.T) {
			w := newTestEnv(t)
			w.granted, w.watched = true, watchedSecret()
			var result hostabi.Result
			if reason != "" {
				result.Error = &hostabi.ResultError{Reason: reason, Message: "m"}
			}
			_, settled := w.deletes(target("other", "secret"), result)
			if diff := cmp.Diff([]writer.Settlement{want}, settled, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

package retainer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/retainer"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

const (
	oldPods     = `{mode: Enforce, resources: [{apiGroups: [""], resources: [pods]}], maxAge: 1h}`
	lastPods    = `{mode: Enforce, resources: [{apiGroups: [""], resources: [pods]}], keepLast: 2}`
	unusedMaps  = `{mode: Enforce, resources: [{apiGroups: [""], resources: [configmaps]}], maxAge: 1h}`
	previewPods = `{mode: Enforce, resources: [{apiGroups: [""], resources: [pods]}], maxAge: 1h, namespaceSelector: {matchLabels: {stage: preview}}}`
)

func pod(namespace, name string) string {
	return fmt.Sprintf("{kind: Pod, metadata: {namespace: %s, name: %s}}", namespace, name)
}

func TestRetainer_RemovesWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(pod("shop", "old"), 2*time.Hour)
		w.put(pod("shop", "young"), time.Minute)
		w.put(pod("other", "old"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		w.expectLeft("Pod", "old", "young")
		w.status("shop/old", "one removal", func(s retainer.PolicyStatus) bool {
			return s.Removed[retain.TooOld] == 1 && s.Due == 0 && s.Selected == 1
		})
		w.put(pod("shop", "older"), 3*time.Hour)
		w.expectLeft("Pod", "old", "young")
		w.mu.Lock()
		defer w.mu.Unlock()
		o := w.outcomes[0]
		if len(w.outcomes) != 2 || o.Object.Name != "old" || o.Reason != retain.TooOld || o.Message != "maxAge: 1h" || o.Policy.Policy.String() != "RetentionPolicy shop/old" {
			t.Errorf("recorded: %+v", w.outcomes)
		}
	})
}

// P-14: it is removed when its time has come, without another list or read before.
func TestP14_Retainer_PollsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(pod("shop", "soon"), time.Hour-2*time.Second)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		w.status("shop/old", "when it is removed", func(s retainer.PolicyStatus) bool { return len(s.Next) == 1 && !s.Next[0].Due.IsZero() })
		w.mu.Lock()
		listed := w.lists["pods"]
		w.mu.Unlock()
		w.expectLeft("Pod")
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := w.lists["pods"]; n != listed || n != 1 {
			t.Errorf("%d lists of Pods; want one", n)
		}
	})
}

// P-13: it is decided again about an object that has changed since.
func TestP13_Retainer_ReadsAgainBeforeARemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.gate.Follow()
		w.put(pod("shop", "old"), 2*time.Hour)
		w.put(pod("shop", "kept"), 2*time.Hour)
		w.put(pod("shop", "again"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		w.status("shop/old", "three objects that are due", func(s retainer.PolicyStatus) bool { return s.Due == 3 })
		w.mu.Lock()
		w.silent = true // the watch lags
		w.mu.Unlock()
		w.put(`{kind: Pod, metadata: {namespace: shop, name: kept, annotations: {gleaner.dev/keep: "true"}}}`, 2*time.Hour)
		w.remove("Pod shop/again")
		w.put(pod("shop", "again"), time.Minute)
		w.gate.Lead()
		w.expectLeft("Pod", "again", "kept")
		w.status("shop/old", "nothing that is due", func(s retainer.PolicyStatus) bool { return s.Due == 0 && s.Kept[retain.IsPinned] == 1 })
	})
}

// Limits of numbers count what exists, not what a lagging watch has shown: two that are left must not become one.
func TestRetainer_CountsWhatExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.gate.Follow()
		for i, name := range []string{"a", "b", "c"} {
			w.put(pod("shop", name), time.Duration(9-i)*time.Hour)
		}
		w.apply(map[string]string{"shop/last": lastPods})
		w.run()
		w.status("shop/last", "one object that is due", func(s retainer.PolicyStatus) bool { return s.Due == 1 })
		w.mu.Lock()
		w.silent = true
		w.mu.Unlock()
		w.remove("Pod shop/c")
		w.gate.Lead()
		w.status("shop/last", "that c is gone", func(s retainer.PolicyStatus) bool { return s.Selected == 2 && s.Due == 0 })
		w.expectLeft("Pod", "a", "b")
	})
}

func TestRetainer_DecidesNothing_UntilEverythingIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var failing atomic.Bool
		failing.Store(true)
		w.setFails(func(verb, resource, _ string) error {
			if verb == "list" && resource == "secrets" && failing.Load() {
				return errors.New("no Secrets yet")
			}
			return nil
		})
		w.put(pod("shop", "a"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": `{mode: Enforce, resources: [{apiGroups: [""], resources: [pods, secrets]}], maxAge: 1h}`})
		w.run()
		w.eventually("Pods are listed", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.lists["pods"] != 0
		})
		w.status("shop/old", "that it is listing", func(s retainer.PolicyStatus) bool { return s.Listing })
		w.expectLeft("Pod", "a")
		failing.Store(false)
		w.expectLeft("Pod")
	})
}

// P-18: one that can't be removed does not keep others, of this policy or of another one.
func TestP18_Retainer_AFailureStopsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setFails(func(verb, _, name string) error {
			if verb == "delete" && strings.HasPrefix(name, "stuck") {
				return errors.New("a webhook denied it")
			}
			return nil
		})
		for i := range 150 { // more than a turn
			w.put(pod("shop", fmt.Sprint("stuck", i)), 3*time.Hour)
		}
		w.put(pod("shop", "z"), 2*time.Hour)
		w.put(pod("other", "z"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods, "other/old": oldPods})
		w.run()
		w.eventually("the others are removed", func() bool { return len(w.names("Pod")) == 150 })
		w.status("shop/old", "the failure", func(s retainer.PolicyStatus) bool {
			return strings.Contains(s.Failure, "a webhook denied it") && !s.FailedAt.IsZero() && s.Failing == s.Due && s.Due == 150
		})
	})
}

// blocking holds back writes to one namespace until the test ends.
type blocking struct {
	passing
	namespace string
	end       chan struct{}
}

func (b blocking) Admit(_ context.Context, write writer.Write) (writer.Admission, error) {
	if write.Target.Namespace == b.namespace {
		<-b.end
	}
	return writer.Admission{Outcome: writer.Pass}, nil
}

// The objects of one namespace that take forever to be deleted do not delay those of others.
func TestRetainer_ANamespaceHasOneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := blocking{namespace: "slow", end: make(chan struct{})}
		w.steps = []writer.Step{b}
		specs := map[string]string{"quick/old": oldPods}
		for i := range 8 {
			specs[fmt.Sprint("slow/old", i)] = oldPods
		}
		w.put(pod("slow", "a"), 2*time.Hour)
		w.apply(specs)
		w.run()
		w.put(pod("quick", "b"), 2*time.Hour)
		w.expectLeft("Pod", "a")
		close(b.end)
		w.expectLeft("Pod")
	})
}

func TestRetainer_OnlyTheLeaderRemoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.gate.Follow()
		w.put(pod("shop", "old"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		w.status("shop/old", "what is due", func(s retainer.PolicyStatus) bool { return s.Due == 1 })
		w.expectLeft("Pod", "old")
		w.gate.Lead()
		w.expectLeft("Pod")
	})
}

func TestRetainer_LooksAtTheLabelsOfNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put("{kind: Namespace, metadata: {name: preview, labels: {stage: preview}}}", time.Hour)
		w.put("{kind: Namespace, metadata: {name: shop}}", time.Hour)
		w.put(pod("preview", "a"), 2*time.Hour)
		w.put(pod("shop", "b"), 2*time.Hour)
		w.put(pod("unknown", "c"), 2*time.Hour)
		w.apply(map[string]string{"previews": previewPods})
		w.run()
		w.expectLeft("Pod", "b", "c")
		w.status("previews", "that one is kept since its namespace is not known", func(s retainer.PolicyStatus) bool { return s.Kept[retain.IsProtected] == 1 })
		w.put("{kind: Namespace, metadata: {name: shop, labels: {stage: preview}}}", time.Hour)
		w.expectLeft("Pod", "c")
	})
}

func TestRetainer_ForgetsAPolicyThatIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.gate.Follow()
		w.put(pod("shop", "old"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		w.status("shop/old", "what is due", func(s retainer.PolicyStatus) bool { return s.Due == 1 })
		w.apply(nil)
		w.eventually("it is forgotten", func() bool {
			all, known := w.Status().Load()
			return known && len(all) == 0
		})
		w.gate.Lead()
		w.apply(map[string]string{"shop/other": strings.Replace(oldPods, "1h", "1000h", 1)})
		w.status("shop/other", "that it was evaluated", func(s retainer.PolicyStatus) bool { return s.Selected == 1 })
		w.expectLeft("Pod", "old")
	})
}

// An object that can't be deleted because of a budget or a pause is tried again when that may have changed.
func TestRetainer_WaitsAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var open atomic.Bool
		w.steps = []writer.Step{waiting{open: &open}}
		w.put(pod("shop", "old"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		w.status("shop/old", "that it waits", func(s retainer.PolicyStatus) bool { return s.Waiting && strings.Contains(s.Failure, "not now") })
		w.expectLeft("Pod", "old")
		open.Store(true)
		w.Retry()
		w.expectLeft("Pod")
		w.status("shop/old", "that it does not wait", func(s retainer.PolicyStatus) bool { return !s.Waiting })
	})
}

type waiting struct {
	passing
	open *atomic.Bool
}

func (s waiting) Admit(context.Context, writer.Write) (writer.Admission, error) {
	if s.open.Load() {
		return writer.Admission{Outcome: writer.Pass}, nil
	}
	return writer.Admission{Outcome: writer.Wait, Reason: "not now", Retry: time.Hour}, nil
}

// P-21: dependents are deleted as the policy says.
func TestP21_Retainer_DeletesWithThePropagationPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.put(pod("shop", "a"), 2*time.Hour)
		w.put(pod("other", "a"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods, "other/old": strings.Replace(oldPods, "maxAge", "propagationPolicy: Orphan, maxAge", 1)})
		w.run()
		w.expectLeft("Pod")
		w.eventually("both are recorded", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.outcomes) == 2
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, o := range w.outcomes {
			if want := map[string]metav1.DeletionPropagation{"shop": "Background", "other": "Orphan"}[o.Object.Namespace]; o.Action.Propagation != want || w.propagation[o.Object.Namespace] != want {
				t.Errorf("%s: %s was requested, and %s recorded; want %s", o.Object.Namespace, w.propagation[o.Object.Namespace], o.Action.Propagation, want)
			}
		}
	})
}

// P-22: removals are counted by the limit that removed them, and failures are.
func TestP22_Retainer_CountsByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i, name := range []string{"old", "a", "b", "c"} {
			w.put(pod("shop", name), 100*time.Minute-time.Duration(i)*15*time.Minute)
		}
		var failing atomic.Bool
		failing.Store(true)
		w.setFails(func(verb, _, name string) error {
			if verb == "delete" && name == "a" && failing.Swap(false) {
				return errors.New("not today")
			}
			return nil
		})
		w.apply(map[string]string{"shop/both": `{mode: Enforce, resources: [{apiGroups: [""], resources: [pods]}], keepLast: 1, maxAge: 90m}`})
		w.run()
		w.status("shop/both", "removals by reason", func(s retainer.PolicyStatus) bool {
			return s.Removed[retain.TooOld] == 1 && s.Removed[retain.Excess] == 2 && s.Failures == 1
		})
		w.status("shop/both", "the delays of removals, one of which has failed at first", func(s retainer.PolicyStatus) bool {
			within := s.Delays.Buckets()
			return s.Delays.Count == 3 && within[1] == 2 && within[60] == 3 && s.Delays.Sum >= 5*time.Second
		})
		w.expectLeft("Pod", "c")
	})
}

// A limit of numbers looks at objects as they are now: one that has got another label is in another group.
func TestRetainer_CountsGroupsAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.gate.Follow()
		labeled := func(name, app string) string {
			return fmt.Sprintf("{kind: Pod, metadata: {namespace: shop, name: %s, labels: {app: %s}}}", name, app)
		}
		for i, name := range []string{"a", "b", "c"} {
			w.put(labeled(name, "web"), time.Duration(9-i)*time.Hour)
		}
		w.apply(map[string]string{"shop/last": `{mode: Enforce, resources: [{apiGroups: [""], resources: [pods]}], keepLast: 2, groupBy: {type: Label, label: app}}`})
		w.run()
		w.status("shop/last", "one object that is due", func(s retainer.PolicyStatus) bool { return s.Due == 1 })
		w.mu.Lock()
		w.silent = true
		w.mu.Unlock()
		w.put(labeled("c", "api"), 7*time.Hour)
		w.gate.Lead()
		w.status("shop/last", "that nothing is due", func(s retainer.PolicyStatus) bool { return s.Due == 0 && s.Selected == 3 })
		w.expectLeft("Pod", "a", "b", "c")
	})
}

// An object that changes at the moment of its removal, in something that decides nothing, is tried again.
func TestRetainer_TriesAgain_AfterAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var conflicts atomic.Bool
		conflicts.Store(true)
		w.steps = []writer.Step{onAdmit(func(write writer.Write) {
			if conflicts.Swap(false) {
				w.put("{kind: Pod, metadata: {namespace: shop, name: old, annotations: {a: b}}}", 2*time.Hour)
			}
		})}
		w.put(pod("shop", "old"), 2*time.Hour)
		w.apply(map[string]string{"shop/old": oldPods})
		w.run()
		w.expectLeft("Pod")
	})
}

// onAdmit is a step that does something before a write.
type onAdmit func(writer.Write)

func (f onAdmit) Admit(_ context.Context, write writer.Write) (writer.Admission, error) {
	f(write)
	return writer.Admission{Outcome: writer.Pass}, nil
}
func (onAdmit) Settle(context.Context, writer.Write, writer.Settlement) {}

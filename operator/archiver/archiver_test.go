package archiver_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archiver"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

func TestDelete_IsSentOnceTheObjectIsInTheArchive(t *testing.T) {
	w := newWorld(t, policy("keep", func(s *v1alpha1.ArchivePolicySpec) { s.TTL = &metav1.Duration{Duration: time.Hour} }, "configmaps"))
	o := w.given("ConfigMap", "a")
	sent, _, err := w.delete(o, writer.Cause{Reason: "OwnersAbsent", Message: "owner is gone", Policy: "ClusterGCPolicy p", Owner: "owner"})
	if !sent || err != nil {
		t.Fatalf("sent: %t, %v", sent, err)
	}
	list := w.headers(archive.Query{UID: "a"})
	if len(list) != 1 {
		t.Fatalf("archived are %+v", list)
	}
	h := list[0]
	want := archive.Cause{By: archive.ByGleaner, Reason: "OwnersAbsent", Message: "owner is gone", Policy: "ClusterGCPolicy p", Root: "owner"}
	if diff := cmp.Diff(want, h.Cause); diff != "" {
		t.Error(diff)
	}
	if h.Expires.Sub(h.Time) != time.Hour || h.ResourceVersion != "7" || !slices.Equal(h.Policies, []string{"ClusterArchivePolicy keep"}) {
		t.Errorf("the header is %+v", h)
	}
	if diff := cmp.Diff(w.objects["configmaps/a"], w.open(h)); diff != "" {
		t.Error(diff)
	}
	if got := w.Stats("keep"); got.Archived != 1 || got.Bytes != h.Size || got.Missed != 0 {
		t.Errorf("counted are %+v", got)
	}
}

// An object of which any of this is not known is kept.
func TestDelete_IsNotSent_IfTheObjectCannotBeArchived(t *testing.T) {
	labeled := func(s *v1alpha1.ArchivePolicySpec) {
		s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	}
	for claim, c := range map[string]struct {
		policy func(*v1alpha1.ArchivePolicySpec)
		change func(*world)
		want   string
	}{
		"there is no store":                 {nil, func(w *world) { w.storeErr = errOffline }, "connection refused"},
		"the store is closed":               {nil, func(w *world) { _ = w.store.Close() }, "closed"},
		"the object can't be read":          {nil, func(w *world) { w.readErr = errOffline }, "connection refused"},
		"its namespace can't be read":       {labeled, func(w *world) { w.namespaceErr = errOffline }, "read its namespace"},
		"the recipients can't be used":      {func(s *v1alpha1.ArchivePolicySpec) { s.Recipients = []string{"age1nonsense"} }, func(*world) {}, "recipient"},
		"the object is larger than allowed": {nil, func(w *world) { w.given("ConfigMap", "a", tooLarge) }, "too large"},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t, policy("keep", c.policy, "configmaps"))
			o := w.given("ConfigMap", "a")
			c.change(w)
			sent, _, err := w.delete(o)
			if sent || err == nil || !strings.Contains(err.Error(), c.want) || writer.IsWait(err) {
				t.Errorf("sent: %t, %v", sent, err)
			}
			if got := w.Stats("keep"); got.Archived != 0 || got.Missed != 0 || !strings.Contains(got.Failure, c.want) {
				t.Errorf("counted are %+v", got)
			}
		})
		t.Run(claim+", and the policy lets it go", func(t *testing.T) {
			w := newWorld(t, policy("keep", func(s *v1alpha1.ArchivePolicySpec) {
				if c.policy != nil {
					c.policy(s)
				}
				onFailureContinue(s)
			}, "configmaps"))
			o := w.given("ConfigMap", "a")
			c.change(w)
			if sent, _, err := w.delete(o); !sent || err != nil {
				t.Errorf("sent: %t, %v", sent, err)
			}
			if got := w.Stats("keep"); got.Missed != 1 || got.FailedAt.IsZero() {
				t.Errorf("counted are %+v", got)
			}
		})
		t.Run(claim+", and one of two policies lets it go", func(t *testing.T) {
			w := newWorld(t, policy("keep", c.policy, "configmaps"), policy("lenient", onFailureContinue, "configmaps"))
			o := w.given("ConfigMap", "a")
			c.change(w)
			if sent, _, err := w.delete(o); sent || err == nil {
				t.Errorf("sent: %t, %v", sent, err)
			}
		})
	}
}

func tooLarge(o *unstructured.Unstructured) {
	o.Object["data"] = map[string]any{"key": strings.Repeat("x", archive.MaxObjectBytes)}
}

func TestDelete_Waits_UntilTheArchivePoliciesAreKnown(t *testing.T) {
	w := newWorld(t)
	w.snapshot = nil
	if sent, _, err := w.delete(w.given("ConfigMap", "a")); sent || !writer.IsWait(err) {
		t.Errorf("sent: %t, %v", sent, err)
	}
}

func TestDelete_OfAnObjectThatHasChangedIsDecidedAgain(t *testing.T) {
	for claim, change := range map[string]func(*unstructured.Unstructured){
		"it is in another state": func(o *unstructured.Unstructured) { o.SetResourceVersion("8") },
		"it is another object":   func(o *unstructured.Unstructured) { o.SetUID("new") },
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t, policy("keep", nil, "configmaps"))
			o := w.given("ConfigMap", "a")
			change(w.objects["configmaps/a"])
			if sent, result, err := w.delete(o); sent || result != act.Changed || err != nil {
				t.Errorf("sent: %t, %s, %v", sent, result, err)
			}
			if list := w.headers(archive.Query{}); len(list) != 0 {
				t.Errorf("archived are %+v", list)
			}
		})
	}
}

func TestDelete_OfWhatNoPolicySelectsCostsNoRead(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "secrets"), policy("other", func(s *v1alpha1.ArchivePolicySpec) {
		s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	}, "configmaps"))
	if sent, _, err := w.delete(w.given("ConfigMap", "a")); !sent || err != nil || w.reads != 0 {
		t.Errorf("sent: %t, %v, %d reads", sent, err, w.reads)
	}
	w.given("Secret", "s") // without recipients
	if sent, _, err := w.delete(w.given("Secret", "s")); !sent || err != nil || w.reads != 0 {
		t.Errorf("sent: %t, %v, %d reads", sent, err, w.reads)
	}
	if list := w.headers(archive.Query{}); len(list) != 0 {
		t.Errorf("archived are %+v", list)
	}
}

func TestDelete_IsArchived_IfItsLabelsMatch(t *testing.T) {
	w := newWorld(t, policy("keep", func(s *v1alpha1.ArchivePolicySpec) {
		s.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "data"}}
	}, "configmaps"))
	labeled := func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"tier": "data"}) }
	for _, o := range []graph.Object{w.given("ConfigMap", "a", labeled), w.given("ConfigMap", "b")} {
		if sent, _, err := w.delete(o); !sent || err != nil {
			t.Errorf("sent: %t, %v", sent, err)
		}
	}
	if list := w.headers(archive.Query{}); len(list) != 1 || list[0].Object.Name != "a" {
		t.Errorf("archived are %+v", list)
	}
}

func TestDelete_OfAnObjectThatIsGonePasses(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"))
	o := w.given("ConfigMap", "a")
	clear(w.objects)
	if sent, _, err := w.delete(o); !sent || err != nil {
		t.Errorf("sent: %t, %v", sent, err)
	}
}

// The finalizer archives it in its last state.
func TestDelete_OfAnObjectWithTheFinalizerIsArchivedByThat(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"))
	p := w.snapshot.Archives[0]
	o := w.given("ConfigMap", "a", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{p.Finalizer.Entry}) })
	if sent, _, err := w.delete(o, writer.Cause{Reason: "OwnersAbsent", Owner: "owner"}); !sent || err != nil || len(w.headers(archive.Query{})) != 0 {
		t.Fatalf("sent: %t, %v, archived are %+v", sent, err, w.headers(archive.Query{}))
	}
	terminating := w.objects["configmaps/a"]
	terminating.SetResourceVersion("8")
	if done, err := w.Archive(t.Context(), p, terminating); err != nil || done != "it was archived" {
		t.Errorf("%q, %v", done, err)
	}
	list := w.headers(archive.Query{})
	if len(list) != 1 || list[0].ResourceVersion != "8" || list[0].Cause.By != archive.ByGleaner || list[0].Cause.Root != "owner" {
		t.Errorf("archived are %+v", list)
	}
}

func TestFinalizer_ArchivesWhatSomebodyElseDeletes(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"))
	w.given("ConfigMap", "a")
	if _, err := w.Archive(t.Context(), w.snapshot.Archives[0], w.objects["configmaps/a"]); err != nil {
		t.Fatal(err)
	}
	list := w.headers(archive.Query{})
	if len(list) != 1 || list[0].Cause != (archive.Cause{By: archive.ByOther, Root: "a"}) {
		t.Errorf("archived are %+v", list)
	}
}

func TestFinalizer_KeepsWhatCannotBeArchived(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"), policy("lenient", onFailureContinue, "configmaps"))
	w.given("ConfigMap", "a")
	w.storeErr = errOffline
	for _, p := range w.snapshot.Archives {
		done, err := w.Archive(t.Context(), p, w.objects["configmaps/a"])
		if p.Continue != (err == nil) || p.Continue != strings.Contains(done, "onFailure: Continue") {
			t.Errorf("%s: %q, %v", p.Policy, done, err)
		}
	}
}

// What one policy has encrypted is not stored in plain text for another one.
func TestSecret_IsEncryptedToTheRecipientsOfAllPolicies(t *testing.T) {
	a, b := identity(t), identity(t)
	recipients := func(of *age.X25519Identity) func(*v1alpha1.ArchivePolicySpec) {
		return func(s *v1alpha1.ArchivePolicySpec) { s.Recipients = []string{of.Recipient().String()} }
	}
	w := newWorld(t, policy("plain", nil, "configmaps"), policy("one", recipients(a), "configmaps", "secrets"), policy("two", recipients(b), "configmaps", "secrets"))
	defer func() {
		if got := w.Totals(); got.Archived != 2 {
			t.Errorf("the totals are %+v", got)
		}
	}()
	for _, o := range []graph.Object{w.given("Secret", "s"), w.given("ConfigMap", "c")} {
		if sent, _, err := w.delete(o); !sent || err != nil {
			t.Fatalf("sent: %t, %v", sent, err)
		}
		h := w.headers(archive.Query{UID: o.UID})[0]
		body, err := w.store.Body(t.Context(), h)
		if err != nil || h.Recipients != 2 {
			t.Fatalf("%+v, %v", h, err)
		}
		if _, err := archive.Open(h, body); err == nil {
			t.Errorf("%s can be read without an identity", h.Object)
		}
		for _, id := range []age.Identity{a, b} {
			if got := w.open(h, id); got.GetName() != string(o.UID) {
				t.Errorf("got %+v", got)
			}
		}
	}
}

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestEntries_HaveTheRootOfTheirCascade(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"))
	for _, step := range []struct{ name, owner string }{{"replicas", "web"}, {"pod", "replicas"}, {"log", "pod"}, {"alone", ""}} {
		if sent, _, err := w.delete(w.given("ConfigMap", step.name), writer.Cause{Owner: types.UID(step.owner)}); !sent || err != nil {
			t.Fatalf("sent: %t, %v", sent, err)
		}
	}
	roots := map[string]string{}
	for _, h := range w.headers(archive.Query{}) {
		roots[h.Object.Name] = string(h.Cause.Root)
	}
	if diff := cmp.Diff(map[string]string{"replicas": "web", "pod": "web", "log": "web", "alone": "alone"}, roots); diff != "" {
		t.Error(diff)
	}
}

func TestEntries_HaveTheRootOfACascadeThatBeganBeforeARestart(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"))
	if sent, _, err := w.delete(w.given("ConfigMap", "replicas"), writer.Cause{Owner: "web"}); !sent || err != nil {
		t.Fatalf("sent: %t, %v", sent, err)
	}
	w.Archiver = archiver.New(w.Options)
	if sent, _, err := w.delete(w.given("ConfigMap", "pod"), writer.Cause{Owner: "replicas"}); !sent || err != nil {
		t.Fatalf("sent: %t, %v", sent, err)
	}
	if h := w.headers(archive.Query{UID: "pod"}); len(h) != 1 || h[0].Cause.Root != "web" {
		t.Errorf("archived are %+v", h)
	}
}

func TestCause_OfAWriteThatWasNotSentIsForgotten(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"))
	o := w.given("ConfigMap", "a")
	w.storeErr = errOffline
	if sent, _, err := w.delete(o); sent || err == nil {
		t.Fatalf("sent: %t, %v", sent, err)
	}
	w.storeErr = nil
	if _, err := w.Archive(t.Context(), w.snapshot.Archives[0], w.objects["configmaps/a"]); err != nil {
		t.Fatal(err)
	}
	if h := w.headers(archive.Query{}); len(h) != 1 || h[0].Cause.By != archive.ByOther {
		t.Errorf("archived are %+v", h)
	}
}

// A second DELETE of an object that is being deleted changes what happens to its dependents.
func TestOtherWrites_ArchiveNothing(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"))
	terminating := w.given("ConfigMap", "a")
	terminating.Terminating = true
	for _, write := range []writer.Write{
		{Effect: writer.Releases, Target: w.given("ConfigMap", "b")}, {Effect: writer.Orphans, Target: w.given("ConfigMap", "b")},
		{Effect: writer.State, Target: w.given("ConfigMap", "b")}, {Effect: writer.Deletes, Target: terminating},
	} {
		got, err := w.Step().Admit(t.Context(), write)
		if err != nil || got.Outcome != writer.Pass || w.reads != 0 {
			t.Errorf("%s: %+v, %v, %d reads", write.Effect, got, err, w.reads)
		}
	}
}

func TestStats_OfPoliciesThatAreGoneAreForgotten(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"), policy("other", nil, "configmaps"))
	if sent, _, err := w.delete(w.given("ConfigMap", "a")); !sent || err != nil {
		t.Fatalf("sent: %t, %v", sent, err)
	}
	w.Forget(map[types.UID]bool{"keep": true})
	if w.Stats("keep").Archived != 1 || w.Stats("other").Archived != 0 || w.Totals().Archived != 1 {
		t.Errorf("got %+v, %+v, %+v", w.Stats("keep"), w.Stats("other"), w.Totals())
	}
}

var _ policyset.Archiver = (*archiver.Archiver)(nil)

// Of a dependent with two owners, a collector removes the reference to the one that is gone first.
func TestEntries_HaveTheFormerOwnersOfTheirCascade(t *testing.T) {
	ref := func(name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID(name)}
	}
	removed := map[string]func(*world, graph.Object){
		"by Gleaner": func(w *world, o graph.Object) {
			w.Step().Settle(t.Context(), writer.Write{Effect: writer.Orphans, Target: o, References: []metav1.OwnerReference{ref("left")}}, writer.Settlement{Sent: true})
		},
		"by another collector": func(w *world, o graph.Object) {
			before := o
			before.Owners = []metav1.OwnerReference{ref("left"), ref("right")}
			w.graph[graph.IDOf(o.UID)] = graph.View{Object: before}
			o.Owners = before.Owners[1:]
			w.Apply(graph.Seen{Object: o})
		},
	}
	for by, remove := range removed {
		t.Run(by, func(t *testing.T) {
			w := newWorld(t, policy("keep", nil, "configmaps"))
			o := w.given("ConfigMap", "shared")
			remove(w, o)
			if sent, _, err := w.delete(o); !sent || err != nil {
				t.Fatalf("sent: %t, %v", sent, err)
			}
			h := w.headers(archive.Query{})
			if len(h) != 1 {
				t.Fatalf("archived are %+v", h)
			}
			if diff := cmp.Diff([]metav1.OwnerReference{ref("left")}, h[0].FormerOwners); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Who orphans a dependent wants it to stay without the owner.
func TestEntries_HaveNoFormerOwnersThatStandOrOrphan(t *testing.T) {
	w := newWorld(t, policy("keep", nil, "configmaps"))
	for name, owner := range map[string]graph.Object{
		"stands":  {UID: "owner"},
		"orphans": {UID: "owner", Terminating: true, Orphan: true},
	} {
		o := w.given("ConfigMap", name)
		before := o
		before.Owners = []metav1.OwnerReference{{Kind: "ConfigMap", Name: "owner", UID: "owner"}, {Kind: "ConfigMap", Name: "other", UID: "other"}}
		w.graph[graph.IDOf(o.UID)], w.graph[graph.IDOf("owner")] = graph.View{Object: before}, graph.View{Object: owner}
		o.Owners = before.Owners[1:]
		w.Apply(graph.Seen{Object: o})
		if sent, _, err := w.delete(o); !sent || err != nil {
			t.Fatalf("sent: %t, %v", sent, err)
		}
		if h := w.headers(archive.Query{UID: o.UID}); len(h) != 1 || len(h[0].FormerOwners) != 0 {
			t.Errorf("%s: archived are %+v", name, h)
		}
	}
}

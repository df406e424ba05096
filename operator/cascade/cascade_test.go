package cascade_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/cascade"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

var (
	configMaps = schema.GroupKind{Kind: "ConfigMap"}
	widgets    = schema.GroupKind{Group: "example.com", Kind: "Widget"}
)

// object returns a ConfigMap with owners and finalizers: NAME [owners=NAME[!],…] [finalizers=NAME,…]
// [terminating]. An owner with ! is blocked by it.
func object(text string) graph.Object {
	words := strings.Fields(text)
	meta := &metav1.ObjectMeta{Name: words[0], Namespace: "shop", UID: types.UID(words[0])}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "owners":
			for name := range strings.SplitSeq(value, ",") {
				name, blocks := strings.CutSuffix(name, "!")
				meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{Kind: "ConfigMap", Name: name, UID: types.UID(name), BlockOwnerDeletion: &blocks})
			}
		case "finalizers":
			meta.Finalizers = strings.Split(value, ",")
		case "terminating":
			meta.DeletionTimestamp = &metav1.Time{}
		}
	}
	return graph.ObjectOf(configMaps.WithVersion("v1"), meta)
}

func objects(texts ...string) (all []graph.Object) {
	for _, text := range texts {
		all = append(all, object(text))
	}
	return all
}

// describe returns a status as text: what is gone is only counted.
func describe(s cascade.Status) string {
	var parts []string
	for _, o := range s.Kept {
		parts = append(parts, o.Name+" kept")
	}
	for _, l := range s.Left {
		w := l.Waiting
		text := fmt.Sprintf("%s waits for %s", l.Name, [...]string{"deletion", "finalizers", "policy", "orphaning", "dependents", "its owner", "a collector"}[w.For])
		if w.Object.Name != "" {
			text += " " + w.Object.Name
		}
		if w.Others != 0 {
			text += fmt.Sprintf(" and %d", w.Others)
		}
		if len(w.Finalizers) != 0 {
			text += " " + strings.Join(w.Finalizers, ",")
		}
		parts = append(parts, text)
	}
	return strings.Join(append(parts, fmt.Sprintf("%d of %d gone", s.Gone, s.Total())), "; ")
}

func TestStatus_SaysWhatIsLeftAndWhatItWaitsFor(t *testing.T) {
	before := objects("web", "rs owners=web", "pod owners=rs", "other", "data owners=web,other", "foreign owners=other")
	for name, test := range map[string]struct {
		seen []string
		gone string
		want string
	}{
		"before the deletion": {
			want: "web waits for deletion; rs waits for its owner web; data waits for its owner web; pod waits for its owner rs; 0 of 4 gone"},
		"in the background": {gone: "web",
			want: "rs waits for a collector web; data waits for a collector web; pod waits for its owner rs; 1 of 4 gone"},
		"in the foreground": {
			seen: []string{"web terminating finalizers=foregroundDeletion", "rs owners=web! terminating finalizers=foregroundDeletion", "pod owners=rs! terminating", "data owners=web!,other"},
			want: "web waits for dependents rs and 1; rs waits for dependents pod; data waits for its owner web; pod waits for deletion; 0 of 4 gone"},
		"orphaning": {seen: []string{"web terminating finalizers=orphan"},
			want: "web waits for orphaning; rs waits for its owner web; data waits for its owner web; pod waits for its owner rs; 0 of 4 gone"},
		"orphaned": {seen: []string{"rs", "data owners=other"}, gone: "web",
			want: "rs kept; data kept; pod kept; 1 of 4 gone"},
		"a policy decides": {seen: []string{"web terminating finalizers=" + graph.Hold},
			want: "web waits for policy; rs waits for its owner web; data waits for its owner web; pod waits for its owner rs; 0 of 4 gone"},
		"a finalizer remains": {seen: []string{"pod owners=rs terminating finalizers=example.com/backup,orphan", "data owners=other"}, gone: "web rs",
			want: "data kept; pod waits for finalizers example.com/backup; 2 of 4 gone"},
		"one has another owner": {seen: []string{"data owners=other"}, gone: "web rs pod",
			want: "data kept; 3 of 4 gone"},
		"a dependent that is created meanwhile": {seen: []string{"new owners=rs", "newer owners=new", "foreign owners=other"}, gone: "web pod data",
			want: "rs waits for a collector web; new waits for its owner rs; newer waits for its owner new; 3 of 6 gone"},
		"an event that comes late": {gone: "web rs pod data", seen: []string{"pod owners=rs"},
			want: "4 of 4 gone"},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := cascade.New([]cascade.Root{{Object: object("web")}}, before)
			for _, name := range strings.Fields(test.gone) {
				tracker.Gone(types.UID(name))
			}
			for _, o := range objects(test.seen...) {
				tracker.Seen(o)
			}
			s := tracker.Status()
			if diff := cmp.Diff(test.want, describe(s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.Done() != !strings.Contains(test.want, "waits") {
				t.Errorf("done: %t", s.Done())
			}
		})
	}
}

func TestStatus_OwnersInACycle_AreKeptOnceNothingElseOwnsThem(t *testing.T) {
	tracker := cascade.New([]cascade.Root{{Object: object("top")}}, objects("top", "a owners=top,b", "b owners=a"))
	if got := describe(tracker.Status()); got != "top waits for deletion; a waits for its owner top; b waits for its owner a; 0 of 3 gone" {
		t.Error(got)
	}
	tracker.Gone("top")
	tracker.Seen(object("a owners=b"))
	if got := describe(tracker.Status()); got != "a kept; b kept; 1 of 3 gone" {
		t.Error(got)
	}
}

func TestRoots_WithContents(t *testing.T) {
	namespace := cascade.Root{Object: object("namespace"), Contents: "shop"}
	namespace.Namespace = ""
	outside := object("outside owners=inside")
	outside.Namespace = "other"
	tracker := cascade.New([]cascade.Root{namespace}, append(objects("inside", "below owners=inside"), outside))
	tracker.Gone("inside")
	if got := describe(tracker.Status()); got != "namespace waits for deletion; below waits for a collector inside; outside waits for a collector inside; 1 of 4 gone" {
		t.Error(got)
	}
	tracker.Seen(object("below"))
	tracker.Seen(object("created"))
	tracker.Gone("outside")
	if got := describe(tracker.Status()); got != "namespace waits for deletion; below waits for deletion; created waits for deletion; 2 of 5 gone" {
		t.Error(got)
	}
}

func TestRoots_ADefinitionThatIsGone_HasNoObjects(t *testing.T) {
	widget := object("widget")
	widget.Kind = widgets.WithVersion("v1")
	tracker := cascade.New([]cascade.Root{{Object: object("definition"), Instances: widgets}}, []graph.Object{widget, object("other")})
	if got := describe(tracker.Status()); got != "definition waits for deletion; widget waits for deletion; 0 of 2 gone" {
		t.Error(got)
	}
	tracker.Gone("definition")
	if got := describe(tracker.Status()); got != "2 of 2 gone" {
		t.Error(got)
	}
}

func TestRoots_GoneBefore(t *testing.T) {
	tracker := cascade.New([]cascade.Root{{Object: object("web"), Gone: true}}, objects("rs owners=web", "pod owners=rs"))
	if got := describe(tracker.Status()); got != "rs waits for a collector web; pod waits for its owner rs; 1 of 3 gone" {
		t.Error(got)
	}
}

func TestListed_WhatIsNotListedOfTheKindAndNamespaceIsGone(t *testing.T) {
	elsewhere, widget := object("elsewhere owners=web"), object("widget owners=web")
	elsewhere.Namespace, widget.Kind = "other", widgets.WithVersion("v1")
	tracker := cascade.New([]cascade.Root{{Object: object("web")}}, append(objects("a owners=web", "b owners=web"), elsewhere, widget))
	tracker.Listed(configMaps, "shop", map[types.UID]struct{}{"a": {}})
	if got := describe(tracker.Status()); got != "a waits for a collector web; elsewhere waits for a collector web; widget waits for a collector web; 2 of 5 gone" {
		t.Error(got)
	}
}

// An object may be seen before its owner, which is what makes it part of a cascade.
func TestSeenAll_InAnyOrder(t *testing.T) {
	all := objects("last owners=below", "below owners=late", "late owners=web", "web finalizers=orphan terminating", "other")
	tracker := cascade.New([]cascade.Root{{Object: object("web")}}, nil)
	tracker.SeenAll(all)
	if got := describe(tracker.Status()); got != "web waits for orphaning; late waits for its owner web; below waits for its owner late; last waits for its owner below; 0 of 4 gone" {
		t.Error(got)
	}
}

func TestZeroTracker_HasNothing(t *testing.T) {
	var tracker cascade.Tracker
	tracker.Seen(object("a"))
	tracker.Gone("a")
	if s := tracker.Status(); s.Total() != 0 || !s.Done() {
		t.Errorf("status %+v", s)
	}
}

// Whatever comes in whatever order: a cascade is done exactly if nothing that is left refers to an owner of
// it that is gone or will be.
func TestStatus_OfRandomObjects(t *testing.T) {
	for seed := range int64(200) {
		r := rand.New(rand.NewSource(seed))
		texts := []string{"o0"}
		for i := 1; i < 30; i++ {
			texts = append(texts, fmt.Sprintf("o%d owners=o%d", i, r.Intn(i)))
		}
		tracker := cascade.New([]cascade.Root{{Object: object("o0")}}, objects(texts...))
		gone := map[string]bool{}
		released := map[string]bool{}
		for _, at := range r.Perm(30) {
			if name := fmt.Sprintf("o%d", at); at != 0 && r.Intn(3) == 0 {
				released[name] = true
				tracker.Seen(object(name))
			} else {
				gone[name] = true
				tracker.Gone(types.UID(name))
			}
			s := tracker.Status()
			if s.Total() != 30 || s.Gone != len(gone) {
				t.Fatalf("seed %d: %s", seed, describe(s))
			}
			if slices.ContainsFunc(s.Kept, func(o graph.Object) bool { return gone[o.Name] }) {
				t.Fatalf("seed %d: something gone is kept: %s", seed, describe(s))
			}
		}
		if s := tracker.Status(); !s.Done() || len(s.Kept) != len(released) {
			t.Fatalf("seed %d: %s", seed, describe(s))
		}
	}
}

// 10,000 objects below one owner, half of them gone.
func BenchmarkStatus(b *testing.B) {
	all := objects("top")
	for i := range 10_000 {
		all = append(all, object(fmt.Sprintf("o%d owners=top", i)))
	}
	tracker := cascade.New([]cascade.Root{{Object: all[0]}}, all)
	for i := range 5_000 {
		tracker.Gone(types.UID(fmt.Sprintf("o%d", i)))
	}
	for b.Loop() {
		tracker.Status()
	}
}

package completion_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// The event about a cascade is named after its root, in the root's namespace: a cascade that is continued has the same.
func TestCascade_ThatIsContinuedHasTheSameRoot_WhateverTheReferencesSay(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("a", "root")
	s.remove("root")
	s.remove("a")
	s.expect("root 1/0")
	claim := graph.Coordinates{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Namespace: "elsewhere", Name: "wrong", UID: "root"}
	s.see("late", func(o *graph.Object) {
		o.Namespace = claim.Namespace
		o.Owners = []metav1.OwnerReference{{APIVersion: "v1", Kind: claim.Kind.Kind, Name: claim.Name, UID: claim.UID}}
	})
	s.graph.Apply(graph.Absent{Claim: claim, At: s.now}, nil)
	s.remove("late")
	completed, _ := s.tracker.Check(s.graph, s.now)
	want := completion.Root{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "root", UID: "root"}
	if len(completed) != 1 || completed[0].Root != want {
		t.Errorf("completed %+v, want the root %+v", completed, want)
	}
}

// A dependent is deleted if its reference says another name or namespace than its owner has. The owner is not, and begins a
// cascade of its own later.
func TestCascade_OfADependentWithAWrongReferenceIsNotThatOfItsOwner(t *testing.T) {
	s := newStory(t)
	s.create("root")
	s.create("a", "root")
	claim := graph.Coordinates{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "elsewhere", Name: "root", UID: "root"}
	s.see("wrong", func(o *graph.Object) {
		ownedBy("root")(o)
		o.Namespace = claim.Namespace
	})
	s.create("leaf", "wrong")
	s.graph.Apply(graph.Absent{Claim: claim, At: s.now}, nil)
	s.remove("wrong")
	s.expect()
	s.remove("leaf")
	s.expect("wrong 1/0")
	s.remove("root")
	s.remove("a")
	s.expect("root 1/0")
}

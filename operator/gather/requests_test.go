package gather

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

func TestRequests_RememberWhatAnEventHasShown(t *testing.T) {
	secrets := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	held := graph.Object{UID: "a", Kind: secrets, Terminating: true, Held: true}
	orphaned, foreground, released, kept := held, held, held, held
	orphaned.Orphan, foreground.Foreground, released.Held = true, true, false
	released.Orphan, kept.Orphan, kept.Terminating = true, true, false
	const none, orphan = metav1.DeletionPropagation(""), metav1.DeletePropagationOrphan
	first := graph.Seen{Object: orphaned}
	for name, c := range map[string]struct {
		events  []graph.Event
		want    metav1.DeletionPropagation
		changes int
	}{
		"nothing was requested":         {events: []graph.Event{graph.Seen{Object: held}}},
		"Orphan":                        {events: []graph.Event{first}, want: orphan, changes: 1},
		"Orphan, seen twice":            {events: []graph.Event{first, first}, want: orphan, changes: 1},
		"Orphan, carried out":           {events: []graph.Event{first, graph.Seen{Object: held}}, want: orphan, changes: 1},
		"then Foreground":               {events: []graph.Event{first, graph.Seen{Object: foreground}}, want: metav1.DeletePropagationForeground, changes: 2},
		"the hold is removed":           {events: []graph.Event{first, graph.Seen{Object: released}}, want: none, changes: 1},
		"it is not being deleted":       {events: []graph.Event{graph.Seen{Object: kept}}},
		"it is deleted":                 {events: []graph.Event{first, graph.Deleted{Object: held}}, changes: 1},
		"it is listed":                  {events: []graph.Event{first, graph.Relisted{Kind: secrets.GroupKind(), Listed: map[graph.ID]struct{}{graph.IDOf("a"): {}}}}, want: orphan, changes: 1},
		"it is not listed":              {events: []graph.Event{first, graph.Relisted{Kind: secrets.GroupKind()}}, changes: 1},
		"objects of another kind are":   {events: []graph.Event{first, graph.Relisted{Kind: schema.GroupKind{Kind: "Pod"}}}, want: orphan, changes: 1},
		"its type is not served":        {events: []graph.Event{first, graph.TypeGone{Kind: secrets.GroupKind()}}, changes: 1},
		"another object is deleted":     {events: []graph.Event{first, graph.Deleted{Object: graph.Object{UID: "b"}}}, want: orphan, changes: 1},
		"both, of which Orphan is used": {events: []graph.Event{graph.Seen{Object: graph.Object{UID: "a", Kind: secrets, Terminating: true, Held: true, Orphan: true, Foreground: true}}}, want: orphan, changes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var r Requests
			if changed := r.Apply(c.events...); len(changed) != c.changes {
				t.Errorf("%d changes were reported, want %d", len(changed), c.changes)
			}
			if got := r.Of(graph.IDOf("a")); got != c.want {
				t.Errorf("requested is %q, want %q", got, c.want)
			}
		})
	}
}

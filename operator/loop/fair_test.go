package loop

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

func Test3_12_NamespacesTakeTurns(t *testing.T) {
	q := newFair()
	push := func(namespace string, n ...byte) {
		for _, i := range n {
			q.Push(item{id: graph.ID{i}, namespace: namespace})
		}
	}
	var got []string
	pop := func(n int) {
		for range n {
			i := q.Pop()
			got = append(got, fmt.Sprint(i.namespace, i.id[0]))
		}
	}
	push("big", 1, 2, 3, 4)
	push("small", 5)
	pop(2)
	push("late", 6, 7)
	push("big", 8)
	pop(q.Len())
	want := []string{"big1", "small5", "big2", "late6", "big3", "late7", "big4", "big8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if q.Len() != 0 || len(q.lanes) != 0 || q.turns.Len() != 0 {
		t.Errorf("left are %d items, %d lanes, %d turns", q.Len(), len(q.lanes), q.turns.Len())
	}
}

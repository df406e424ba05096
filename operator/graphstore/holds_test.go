package graphstore

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// A new leader queues the objects whose hold has become necessary or unnecessary before.
func TestLead_QueuesObjectsWithAWrongHold(t *testing.T) {
	secret := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	configMap := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	k := New(func() time.Time { return time.Unix(0, 0) })
	see := func(uid types.UID, kind schema.GroupVersionKind, held bool) {
		k.Apply(graph.Seen{Object: graph.Object{UID: uid, ResourceVersion: "1", Kind: kind, Namespace: "ns", Name: string(uid), Held: held}})
	}
	see("wants", secret, false)
	see("has", secret, true)
	see("unwanted", configMap, true)
	see("plain", configMap, false)
	k.SetHeldKinds(map[schema.GroupKind]struct{}{secret.GroupKind(): {}}) // nobody leads yet

	var queued []graph.ID
	k.Feed(func(id graph.ID, _ string, _ int) { queued = append(queued, id) })
	if len(queued) != 0 {
		t.Fatalf("queued while nobody leads: %v", queued)
	}
	k.Lead()

	for uid, want := range map[types.UID]bool{"wants": true, "has": false, "unwanted": true, "plain": false} {
		if got := slices.Contains(queued, graph.IDOf(uid)); got != want {
			t.Errorf("%s: queued: %t, want %t", uid, got, want)
		}
	}
}

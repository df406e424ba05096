package modules

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// lagging reads what there is, or fails.
type lagging struct {
	client.Client
	err error
}

func (l *lagging) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if l.err != nil {
		return l.err
	}
	return l.Client.List(ctx, list, options...)
}

func TestAReplicaIsNotUpToPoliciesThatAnotherOneHasReadAndItHasNot(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := &lagging{Client: fake.NewClientBuilder().WithScheme(scheme).Build()}
	replica := func() *Keeper {
		return loading(t, keeper(t, func(o *Options) { o.Source = api }))
	}
	leader, follower := replica(), replica()
	state := func() string {
		b, err := leader.rebuild(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !leader.UpTo(b.state) {
			t.Error("it is not up to what it has read itself")
		}
		return b.state
	}
	none := state()
	if follower.UpTo(none) {
		t.Error("it is up to something before it has read anything")
	}
	if _, err := follower.rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}

	p := &v1alpha1.GCPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u", Generation: 1}, Spec: keeping(nil, configMaps()...)}
	if err := api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	created := state()
	if follower.UpTo(created) {
		t.Error("it is up to a policy that it has not read")
	}
	api.err = errors.New("no answer")
	if _, err := follower.rebuild(t.Context()); err == nil || follower.UpTo(created) {
		t.Errorf("it is up to a policy that it could not read: %v", err)
	}
	api.err = nil
	if _, err := follower.rebuild(t.Context()); err != nil || !follower.UpTo(created) || !follower.UpTo(none) {
		t.Errorf("it is not up to what it has read: %v", err)
	}

	// Two changes, of which the follower finds the second alone.
	for p.Generation = 2; p.Generation < 4; p.Generation++ {
		if err := api.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if p.Generation == 2 {
			created = state()
		}
	}
	if follower.UpTo(created) {
		t.Error("it is up to a change that it has not read")
	}
	if _, err := follower.rebuild(t.Context()); err != nil || !follower.UpTo(created) {
		t.Errorf("it does not know that it has passed a state by: %v", err)
	}
}

func TestAReplicaThatDoesNotLeadPlacesHoldsToo(t *testing.T) {
	k, b := once(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "p"), Spec: looking(nil)})
	if k.options.Leads() {
		t.Fatal("it leads")
	}
	for _, p := range b.placements() {
		if finalizer, ok := k.Placed(p.name); !ok || finalizer != graph.Hold {
			t.Errorf("%s: %q, %t", p.name, finalizer, ok)
		}
	}
	if finalizer, ok := k.Placed(holdPrefix + "another"); ok {
		t.Errorf("it places %s for a policy that there is not", finalizer)
	}
}

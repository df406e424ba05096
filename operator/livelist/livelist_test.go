package livelist_test

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/livelist"
)

var pauses = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.KindPause}

// reader lists one Pause, or fails.
type reader struct {
	client.Reader
	failure error
}

func (r reader) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if r.failure == nil {
		into.(*v1alpha1.PauseList).Items = []v1alpha1.Pause{{ObjectMeta: metav1.ObjectMeta{Name: "night"}}}
	}
	return r.failure
}

func TestList_AsksDiscoveryOnlyIfThereIsNoList(t *testing.T) {
	var (
		notFound = apierrors.NewNotFound(schema.GroupResource{Group: pauses.Group, Resource: "pauses"}, "")
		noMatch  = &meta.NoKindMatchError{GroupKind: pauses}
		down     = errors.New("the server is down")
		unproven = errors.New("the group can't be discovered")
	)
	for name, test := range map[string]struct {
		list         error
		absent       bool
		discovery    error
		served, asks bool
		err          error
	}{
		"it can be listed":                       {absent: true, served: true},
		"another error":                          {list: down, absent: true, err: down},
		"not found, and proven to be absent":     {list: notFound, absent: true, asks: true},
		"no match, and proven to be absent":      {list: noMatch, absent: true, asks: true},
		"not found, although it is served":       {list: notFound, asks: true, err: notFound},
		"not found, and discovery fails":         {list: notFound, discovery: unproven, asks: true, err: unproven},
		"proven to be absent, although it fails": {list: notFound, absent: true, discovery: unproven, asks: true, err: unproven},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			absent := func(_ context.Context, gk schema.GroupKind) (bool, error) {
				if asked = true; gk != pauses {
					t.Errorf("asks for %s, want %s", gk, pauses)
				}
				return test.absent, test.discovery
			}
			var into v1alpha1.PauseList
			served, err := livelist.List(t.Context(), reader{failure: test.list}, absent, v1alpha1.KindPause, &into)
			if served != test.served || asked != test.asks || !errors.Is(err, test.err) {
				t.Errorf("List returns served %t, error %v, and asks discovery: %t, want %t, %v, %t", served, err, asked, test.served, test.err, test.asks)
			}
			if want := test.list == nil; want != (len(into.Items) == 1) {
				t.Errorf("List lists %d objects, want one: %t", len(into.Items), want)
			}
		})
	}
}

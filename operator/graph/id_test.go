package graph_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

func FuzzIDOf(f *testing.F) {
	for _, uid := range []string{
		"5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0001", "", "x", "5F1C2F7E-1F43-4A43-8D8E-0E1B6C9A0001",
		"00000000-0000-0000-0000-000000000000", "5f1c2f7e-1f43-fa43-ed8e-0e1b6c9a0001", "5f1c2f7e+1f43-4a43-8d8e-0e1b6c9a0001",
	} {
		f.Add(uid)
	}
	f.Fuzz(func(t *testing.T, uid string) {
		id := graph.IDOf(types.UID(uid))
		if id.Canonical() && id.String() != uid {
			t.Errorf("%q has the ID of %q", uid, id)
		}
		if !id.Canonical() && graph.IDOf(types.UID(id.String())) == id {
			t.Errorf("%q and %q share an ID", uid, id)
		}
	})
}

func TestIDOf_NonUUIDNeverEqualsAUUID(t *testing.T) {
	for uid, canonical := range map[types.UID]bool{
		"5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0001": true,
		"5F1C2F7E-1F43-4A43-8D8E-0E1B6C9A0001": false,
		"5f1c2f7e-1f43-fa43-ed8e-0e1b6c9a0001": false,
		"bogus":                                false,
		"":                                     false,
	} {
		if got := graph.IDOf(uid).Canonical(); got != canonical {
			t.Errorf("%q: canonical is %t", uid, got)
		}
	}
}

package restore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/restore"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// header returns the header of an entry at a time after the start, of an object whose name is its UID.
func header(minutes int, uid types.UID, owners ...types.UID) archive.Header {
	h := archive.Header{ID: fmt.Sprintf("%03d-%s", minutes, uid), Time: start.Add(time.Duration(minutes) * time.Minute)}
	h.Object = archive.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: string(uid), UID: uid}
	for _, owner := range owners {
		h.Owners = append(h.Owners, archive.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: string(owner), UID: owner})
	}
	return h
}

func collection(headers ...archive.Header) *restore.Collection {
	c := &restore.Collection{}
	for _, h := range headers {
		c.Add(h)
	}
	return c
}

func idsOf(headers []archive.Header) (ids []string) {
	for _, h := range headers {
		ids = append(ids, h.ID)
	}
	return ids
}

func TestCollection_HasTheNewestEntryOfEachObject(t *testing.T) {
	for claim, c := range map[string]*restore.Collection{
		"oldest first": collection(header(1, "a"), header(2, "b"), header(3, "a")),
		"newest first": collection(header(3, "a"), header(2, "b"), header(1, "a")),
	} {
		if diff := cmp.Diff([]string{"003-a", "002-b"}, idsOf(c.All())); diff != "" || c.Len() != 2 {
			t.Errorf("%s: %s", claim, diff)
		}
	}
}

func TestCascade_HasWhatIsBelowTheRoots(t *testing.T) {
	byNamespace := header(7, "by-root")
	byNamespace.Cause.Root = "root"
	other := header(8, "other-cascade")
	other.Cause.Root = "elsewhere"
	c := collection(header(1, "leaf", "middle", "second"), header(2, "middle", "root"), header(3, "root"),
		header(4, "second"), header(5, "unrelated", "second"), header(6, "round", "round"), byNamespace, other, header(9, "below-root", "by-root"))
	for claim, test := range map[string]struct {
		roots []types.UID
		want  []string
	}{
		"an object with all levels below it":   {[]types.UID{"root"}, []string{"009-below-root", "007-by-root", "003-root", "002-middle", "001-leaf"}},
		"one of two owners":                    {[]types.UID{"second"}, []string{"005-unrelated", "004-second", "001-leaf"}},
		"an object without dependents":         {[]types.UID{"leaf"}, []string{"001-leaf"}},
		"an object that owns itself":           {[]types.UID{"round"}, []string{"006-round"}},
		"a root that is not archived":          {[]types.UID{"elsewhere"}, []string{"008-other-cascade"}},
		"an object that is not archived":       {[]types.UID{"never"}, nil},
		"two roots with a common dependent":    {[]types.UID{"middle", "second"}, []string{"005-unrelated", "004-second", "002-middle", "001-leaf"}},
		"not what another cascade has deleted": {[]types.UID{"unrelated"}, []string{"005-unrelated"}},
	} {
		if diff := cmp.Diff(test.want, idsOf(c.Cascade(test.roots...))); diff != "" {
			t.Errorf("%s: %s", claim, diff)
		}
	}
}

func TestInNamespace_OmitsWhatWasDeletedBefore(t *testing.T) {
	away := header(9, "away")
	away.Object.Namespace = "other"
	c := collection(header(1, "before"), header(5, "at"), header(6, "after"), away)
	if diff := cmp.Diff([]types.UID{"after", "at"}, c.InNamespace("shop", start.Add(5*time.Minute))); diff != "" {
		t.Error(diff)
	}
}

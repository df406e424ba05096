package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/memory"
)

var start = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

func minute(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }

func isKind(kind string) func(schema.GroupKind) bool {
	return func(gk schema.GroupKind) bool { return gk == schema.GroupKind{Kind: kind} }
}

func headerNames(headers []archive.Header) (names []string) {
	for _, h := range headers {
		names = append(names, h.Object.Name)
	}
	slices.Sort(names)
	return names
}

// archived is an archive with a tree, other objects, and a namespace that was deleted in the fifth minute.
func archived(t *testing.T) *memory.Archive {
	t.Helper()
	m := &memory.Archive{}
	root := configMap("root")
	middle := configMap("middle", root)
	gleaner := archive.Cause{By: archive.ByGleaner}
	m.Add(t, configMap("leaf", middle), minute(1), gleaner)
	m.Add(t, middle, minute(2), gleaner)
	m.Add(t, root, minute(3), archive.Cause{By: archive.ByOther})
	m.Add(t, configMap("alone"), minute(4), archive.Cause{Root: "the-root"})
	ns := namespace("gone")
	deleted := metav1.NewTime(minute(5))
	ns.SetDeletionTimestamp(&deleted)
	for at, name := range map[int]string{4: "before", 6: "inside"} {
		o := configMap(name)
		o.SetNamespace("gone")
		m.Add(t, o, minute(at), gleaner)
	}
	m.Add(t, ns, minute(7), archive.Cause{})
	older := configMap("root")
	older.SetUID("older-root")
	m.Add(t, older, minute(0), archive.Cause{})
	return m
}

func TestChoose_Selections(t *testing.T) {
	shop, gone := "shop", "gone"
	for claim, c := range map[string]struct {
		selection
		want []string
	}{
		"an object with what is below it":           {selection{name: "root", isKind: isKind("ConfigMap"), namespace: &shop, isLocal: true}, []string{"leaf", "middle", "root"}},
		"a kind that is no longer served":           {selection{name: "middle", isKind: isKind("ConfigMap"), namespace: &shop}, []string{"leaf", "middle"}},
		"another kind":                              {selection{name: "root", isKind: isKind("Secret"), namespace: &shop, isLocal: true}, nil},
		"another namespace":                         {selection{name: "root", isKind: isKind("ConfigMap"), namespace: &gone}, nil},
		"a former object by its UID":                {selection{uid: "older-root"}, []string{"root"}},
		"a UID that was never archived":             {selection{uid: "never"}, nil},
		"a cascade by its root":                     {selection{cascade: "the-root"}, []string{"alone"}},
		"a period in a namespace":                   {selection{since: minute(3), namespace: &shop}, []string{"alone", "root"}},
		"a period in all namespaces":                {selection{since: minute(6)}, []string{"gone", "inside"}},
		"what Gleaner deleted in a period":          {selection{since: minute(2), byGleaner: true, namespace: &shop}, []string{"middle"}},
		"a namespace as it was when it was deleted": {selection{name: "gone", isKind: isKind("Namespace")}, []string{"gone", "inside"}},
	} {
		t.Run(claim, func(t *testing.T) {
			chooser := &chooser{Reader: archived(t)}
			found, _, err := chooser.choose(t.Context(), c.selection)
			if diff := cmp.Diff(c.want, headerNames(found)); diff != "" || err != nil {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

func TestChoose_NotesSeveralFormerObjects(t *testing.T) {
	shop := "shop"
	c := &chooser{Reader: archived(t)}
	found, notes, err := c.choose(t.Context(), selection{name: "root", isKind: isKind("ConfigMap"), namespace: &shop})
	if err != nil || len(notes) != 3 || !strings.Contains(notes[0], "choose another with --uid") || !strings.Contains(notes[2], "older-root") {
		t.Errorf("%v: %q", err, notes)
	}
	if slices.ContainsFunc(found, func(h archive.Header) bool { return h.Object.UID == "older-root" }) {
		t.Error("the older one is restored, too")
	}
}

func TestChoose_NamesInSeveralNamespacesAreErrors(t *testing.T) {
	m := archived(t)
	o := configMap("root")
	o.SetNamespace("other")
	o.SetUID("other-root")
	m.Add(t, o, minute(9), archive.Cause{})
	c := &chooser{Reader: m}
	if _, _, err := c.choose(t.Context(), selection{name: "root", isKind: isKind("ConfigMap")}); err == nil || !strings.Contains(err.Error(), "select one with -n") {
		t.Errorf("got %v", err)
	}
}

// corruptHeaders is an archive of which some headers are corrupt.
type corruptHeaders struct{ entries.Reader }

func (c corruptHeaders) Headers(ctx context.Context, q archive.Query, yield func(archive.Header) bool) error {
	return errors.Join(c.Reader.Headers(ctx, q, yield), fmt.Errorf("1 header: %w", archive.ErrCorrupt))
}

func TestChoose_CorruptHeadersDoNotHideOthers(t *testing.T) {
	c := &chooser{Reader: corruptHeaders{archived(t)}}
	found, _, err := c.choose(t.Context(), selection{uid: "old-root"})
	if err != nil || len(found) != 3 || c.corrupt == nil {
		t.Errorf("%d entries, noted %v: %v", len(found), c.corrupt, err)
	}
}

func TestObjects_UnreadableOnesAreConflicts(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	m := &memory.Archive{}
	good := m.Add(t, configMap("good"), minute(1), archive.Cause{})
	secret := m.Add(t, configMap("encrypted"), minute(2), archive.Cause{}, key.Recipient())
	bad := m.Add(t, configMap("bad"), minute(3), archive.Cause{})
	m.Corrupt(bad.ID)
	headers := []archive.Header{good, secret, bad}
	for _, c := range []struct {
		identities []age.Identity
		objects    []string
		conflicts  []string
	}{
		{nil, []string{"good"}, []string{"encrypted", "bad"}},
		{[]age.Identity{key}, []string{"good", "encrypted"}, []string{"bad"}},
	} {
		chooser := &chooser{Reader: m, identities: c.identities}
		found, conflicts, err := chooser.objects(t.Context(), headers, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.objects, objectNames(found)) + cmp.Diff(c.conflicts, namesOf(conflicts)); diff != "" {
			t.Error(diff)
		}
	}
}

func objectNames(objects []*unstructured.Unstructured) (names []string) {
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return names
}

func TestObjects_TooMuchIsAnErrorBeforeItIsRead(t *testing.T) {
	c := &chooser{}
	if _, _, err := c.objects(t.Context(), []archive.Header{{Size: maxBytes + 1}}, func(int) {}); err == nil || !strings.Contains(err.Error(), "select fewer") {
		t.Errorf("got %v", err)
	}
}

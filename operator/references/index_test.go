package references_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/references"
)

func put(t *testing.T, x *references.Index, uid, manifest string) {
	t.Helper()
	o := parse(t, manifest)
	o.SetUID(types.UID(uid))
	x.Put(o)
}

const (
	database = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {namespace: shop, name: db}, spec: {volumeClaimTemplates: [{metadata: {name: data}}], template: {spec: {volumes: [{configMap: {name: settings}}]}}}}`
	web      = `{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}, spec: {volumes: [{secret: {secretName: key}}, {secret: {secretName: key}}, {configMap: {name: settings}}]}}`
)

func TestIndex_KnowsAUserOfEachObject(t *testing.T) {
	var x references.Index
	put(t, &x, "db", database)
	put(t, &x, "web", web)
	for _, c := range []struct {
		kind                  references.Kind
		namespace, name, want string
	}{
		{references.ConfigMap, "shop", "settings", "StatefulSet shop/db"},
		{references.Secret, "shop", "key", "Pod shop/web"},
		{references.Claim, "shop", "data-db-0", "StatefulSet shop/db"},
		{references.Claim, "shop", "data-db-12", "StatefulSet shop/db"},
		{references.Claim, "shop", "data-db", ""},
		{references.Claim, "shop", "data-db-x", ""},
		{references.Claim, "shop", "data-db-", ""},
		{references.Claim, "other", "data-db-0", ""},
		{references.Secret, "shop", "settings", ""},
		{references.ConfigMap, "shop", "unused", ""},
	} {
		if got := x.User(c.kind, c.namespace, c.name); got != c.want {
			t.Errorf("%s %s/%s is used by %q; want %q", c.kind, c.namespace, c.name, got, c.want)
		}
	}
	if got := (&references.Index{}).User(references.Secret, "shop", "key"); got != "" {
		t.Errorf("without objects, it is used by %q", got)
	}
}

func TestIndex_FollowsObjectsAsTheyChange(t *testing.T) {
	var x references.Index
	expect := func(name, want string) {
		t.Helper()
		if got := x.User(references.ConfigMap, "shop", name); got != want {
			t.Errorf("%s is used by %q; want %q", name, got, want)
		}
	}
	put(t, &x, "db", database)
	put(t, &x, "web", web)
	x.Forget("db")
	expect("settings", "Pod shop/web")
	put(t, &x, "web", strings.ReplaceAll(web, "settings", "other"))
	expect("settings", "")
	expect("other", "Pod shop/web")
	x.Forget("web")
	x.Forget("web")
	expect("other", "")
}

func TestIndex_SaysWhatIsReleased(t *testing.T) {
	var (
		x        references.Index
		released = references.Set{}
		last     string
	)
	change := func(manifest string) {
		t.Helper()
		o := parse(t, manifest)
		o.SetUID("uid")
		refs, changed := x.Put(o)
		released.Add(refs...)
		if changed != (manifest != last) {
			t.Errorf("changed is %t", changed)
		}
		last = manifest
	}
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, name := range []string{"settings", "other", "key", "data-db-3"} {
			for _, kind := range []references.Kind{references.ConfigMap, references.Secret, references.Claim} {
				if released.Refers(kind, "shop", name) {
					got = append(got, name)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("released: %q; want %q", got, want)
		}
		clear(released)
	}
	change(web)
	change(web)
	expect()
	change(strings.ReplaceAll(web, "settings", "other"))
	expect("settings")
	change(database)
	expect("other", "key")
	released.Add(x.Forget("uid")...)
	expect("settings", "data-db-3")
	released.Add(x.Forget("uid")...)
	expect()
}

// With one object unread, nothing is unused.
func TestIndex_SaysWhatItCouldNotRead(t *testing.T) {
	var x references.Index
	if err := x.Err(); err != nil {
		t.Error(err)
	}
	put(t, &x, "web", web)
	for i := range 5 {
		put(t, &x, fmt.Sprint("broken-", i), fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: broken-%d}, spec: text}`, i))
	}
	if err := x.Err(); err == nil || !strings.Contains(err.Error(), "Pod shop/broken-0") || !strings.Contains(err.Error(), "and of 2 more objects") {
		t.Error(err)
	}
	for i := range 4 {
		x.Forget(types.UID(fmt.Sprint("broken-", i)))
	}
	put(t, &x, "web", `{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web}, spec: text}`)
	if got := x.User(references.Secret, "shop", "key"); got != "" {
		t.Errorf("what can't be read any more uses what it used: %s", got)
	}
	put(t, &x, "web", web)
	put(t, &x, "broken-4", web)
	if err := x.Err(); err != nil {
		t.Error(err)
	}
}

// After any changes, the index is the same as one that is made of what exists.
func TestIndex_OfRandomChangesIsThatOfWhatExists(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	var x references.Index
	exists := map[string]*unstructured.Unstructured{}
	for range 2000 {
		uid := fmt.Sprint("u", r.IntN(20))
		if r.IntN(3) == 0 {
			delete(exists, uid)
			x.Forget(types.UID(uid))
			continue
		}
		o := parse(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: %s, uid: %s}, spec: {volumes: [{secret: {secretName: s%d}}, {secret: {secretName: s%d}}]}}`, uid, uid, r.IntN(15), r.IntN(15)))
		exists[uid] = o
		x.Put(o)
	}
	var again references.Index
	for _, o := range exists {
		again.Put(o)
	}
	used := 0
	for i := range 15 {
		name := fmt.Sprint("s", i)
		got, want := x.User(references.Secret, "shop", name) != "", again.User(references.Secret, "shop", name) != ""
		if got != want {
			t.Errorf("%s is used: %t; want %t", name, got, want)
		}
		if want {
			used++
		}
	}
	if used == 0 || used == 15 {
		t.Errorf("%d of 15 are used", used)
	}
}

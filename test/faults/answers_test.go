package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// family is what an owner's deletion is to do to its dependents, in all three
// ways, beside one that stands.
type family struct {
	*world
	owners              []*unstructured.Unstructured // to be deleted: background, foreground, orphan
	goes, stays, orphan []*unstructured.Unstructured
}

// family makes one with so many dependents of each kind.
func (w *world) family(n int) *family {
	w.Helper()
	f := &family{world: w}
	live := w.make(thing{name: "live"})
	f.stays = append(f.stays, live)
	for _, policy := range []string{"background", "foreground", "orphan"} {
		f.owners = append(f.owners, w.make(thing{name: policy}))
	}
	for i := range n {
		behind := w.make(thing{name: fmt.Sprintf("behind-%d", i), owners: owns(f.owners[0])})
		before := w.make(thing{name: fmt.Sprintf("before-%d", i), owners: blocks(f.owners[1])})
		f.goes = append(f.goes, behind, before,
			w.make(thing{name: fmt.Sprintf("below-%d", i), owners: blocks(before)}))
		f.orphan = append(f.orphan, w.make(thing{name: fmt.Sprintf("left-%d", i), owners: owns(f.owners[2])}))
		f.stays = append(f.stays,
			w.make(thing{name: fmt.Sprintf("kept-%d", i), owners: owns(live)}),
			w.make(thing{name: fmt.Sprintf("shared-%d", i), owners: blocks(f.owners[0], live, f.owners[1])}))
	}
	return f
}

// fall deletes the owners that are to be deleted.
func (f *family) fall() {
	f.Helper()
	for i, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
		f.delete(f.owners[i], policy)
	}
}

// ends waits until all has come about, and makes sure that nothing else has.
func (f *family) end() {
	f.Helper()
	f.world.goes(f.goes...)
	f.world.goes(f.owners...)
	for _, o := range f.orphan {
		f.ownedBy(o)
	}
	f.world.stays(append(f.orphan, f.stays...)...)
}

func TestACascadeComesThroughABurstOf(t *testing.T) {
	first := newWorld(t)
	families, faults := map[string]*family{}, map[string]*fault{}
	for name, happen := range map[string]happening{
		"409": conflict, "429 with Retry-After": busy(time.Second), "500": broken, "503 from a proxy": unavailable,
		"slow answers": slow(time.Second), "dropped connections": dropped, "lost answers": unanswered, "answers that are cut off": cutOff,
		"pages from a captive portal": page(http.StatusOK, "text/html", "<html>log in</html>"),
	} {
		w := worldOn(t, first.stage)
		families[name] = w.family(4)
		faults[name] = w.proxy.fails(t, 30, sometimes(2, in(w.ns)), happen)
	}
	for _, f := range families {
		f.fall()
	}
	for name, f := range families {
		t.Log(name) // so that a failure is told with it
		faults[name].happened(t, 8)
		f.end()
	}
}

// The owners are of a type that is not watched, so each has to be read for
// each decision. It stands, and each answer that is not the API server's own word
// has to leave it standing; nor does one prove that another owner is absent.
func TestA404ThatIsNotTheAPIServersWordDeletesNothing(t *testing.T) {
	w := newWorld(t)
	kind := w.define(unwatched)
	notFound := metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "not found"}
	other, group := notFound, notFound
	other.Details = &metav1.StatusDetails{Name: "somebody-else", Group: unwatched.Group, Kind: "unwatched"}
	group.Details = &metav1.StatusDetails{Name: "owner-6", Group: "example.com", Kind: "unwatched"}
	const partial = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`
	answers := []happening{
		page(http.StatusNotFound, "text/plain", "404 page not found"),
		page(http.StatusNotFound, "text/html", "<html><h1>404</h1></html>"),
		page(http.StatusNotFound, "", ""),
		page(http.StatusNotFound, "application/json", `{"error":"no such route"}`),
		says(notFound),
		says(other),
		says(group),
		page(http.StatusGone, "text/plain", "gone"),
		page(http.StatusOK, "application/json", `{}`),
		page(http.StatusOK, "application/json", partial+`{"name":"x","namespace":"x","uid":"x"}}`),
		page(http.StatusOK, "application/json", partial+`{"name":"owner-10","namespace":"`+w.ns+`"}}`),
		page(http.StatusMovedPermanently, "text/plain", "moved"),
		says(metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "not yet"}),
		dropped, unanswered, cutOff,
	}
	var owners, stay, lost []*unstructured.Unstructured
	var faults []*fault
	for i, happen := range answers {
		owner := w.make(thing{name: fmt.Sprintf("owner-%d", i), kind: kind})
		fault := w.proxy.fails(t, -1, about(w.ns, owner.GetName(), "get"), happen)
		owners, faults = append(owners, owner), append(faults, fault)
		stay = append(stay, w.make(thing{name: fmt.Sprintf("stays-%d", i), owners: owns(owner)}))
		lost = append(lost, w.make(thing{name: fmt.Sprintf("lost-%d", i), owners: wrongUID(owner)}))
	}
	for i := range answers {
		faults[i].happened(t, 2)
		w.holds(stay[i], "OwnerUnreadable")
		w.holds(lost[i], "OwnerUnreadable")
	}
	w.stays(append(stay, lost...)...)
	for _, f := range faults {
		f.Lift()
	}
	w.goes(lost...)
	w.stays(stay...)
	for _, owner := range owners {
		w.delete(owner, background)
	}
	w.goes(stay...)
}

// wrongUID refers to an owner by a UID that nothing has.
func wrongUID(owner *unstructured.Unstructured) []metav1.OwnerReference {
	refs := owns(owner)
	refs[0].UID = types.UID(uuid.NewUUID())
	return refs
}

// The 409 of a webhook looks like that of a precondition. The object has not
// changed, and must not be tried for ever without a pause.
func TestG55_A409ThatNeverEndsIsNoHotLoop(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	refused := w.make(thing{name: "refused", owners: owns(owner)})
	other := w.make(thing{name: "other", owners: owns(owner)})
	w.seen(owner, refused, other)
	fault := w.proxy.fails(t, -1, about(w.ns, "refused", "delete"), conflict)
	began := time.Now()
	w.delete(owner, background)
	w.goes(other)
	// Ten rounds of five attempts: the waits between them add up to 2.6 s, and to
	// 1.3 s without the longest, which ends early if word of the owner comes twice.
	fault.happened(t, 50)
	if took := time.Since(began); took < time.Second {
		t.Errorf("%d attempts within %s", fault.Count(), took)
	}
	fault.Lift()
	w.patch(refused, map[string]any{"labels": map[string]string{"touched": "yes"}})
	w.goes(refused)
}

// 3.28: a change of the object wakes it, however long it would have waited.
func Test3_28_ARefusedWriteWaitsForTheObjectNotForItsTurn(t *testing.T) {
	for name, refusal := range map[string]struct {
		happen   happening
		attempts int // until the next is more than a second away
	}{"500": {broken, 12}, "409": {conflict, 45}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			owner := w.make(thing{name: "owner"})
			refused := w.make(thing{name: "refused", owners: owns(owner)})
			w.seen(owner, refused)
			fault := w.proxy.fails(t, -1, about(w.ns, "refused", "delete"), refusal.happen)
			w.delete(owner, background)
			fault.happened(t, refusal.attempts)
			fault.Lift()
			w.patch(refused, map[string]any{"labels": map[string]string{"touched": "yes"}})
			w.goes(refused)
		})
	}
}

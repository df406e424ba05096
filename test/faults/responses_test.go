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

// cascade is a set of owners, one for each propagation policy and one that is not deleted,
// with dependents.
type cascade struct {
	*env
	owners                  []*unstructured.Unstructured // to be deleted: background, foreground, orphan
	deleted, kept, orphaned []*unstructured.Unstructured
}

// createCascade creates one with n dependents of each kind.
func (w *env) createCascade(n int) *cascade {
	w.Helper()
	f := &cascade{env: w}
	live := w.create(objectSpec{name: "live"})
	f.kept = append(f.kept, live)
	for _, policy := range []string{"background", "foreground", "orphan"} {
		f.owners = append(f.owners, w.create(objectSpec{name: policy}))
	}
	for i := range n {
		behind := w.create(objectSpec{name: fmt.Sprintf("behind-%d", i), owners: ownerRefs(f.owners[0])})
		before := w.create(objectSpec{name: fmt.Sprintf("before-%d", i), owners: blockingRefs(f.owners[1])})
		f.deleted = append(f.deleted, behind, before,
			w.create(objectSpec{name: fmt.Sprintf("below-%d", i), owners: blockingRefs(before)}))
		f.orphaned = append(f.orphaned, w.create(objectSpec{name: fmt.Sprintf("left-%d", i), owners: ownerRefs(f.owners[2])}))
		f.kept = append(f.kept,
			w.create(objectSpec{name: fmt.Sprintf("kept-%d", i), owners: ownerRefs(live)}),
			w.create(objectSpec{name: fmt.Sprintf("shared-%d", i), owners: blockingRefs(f.owners[0], live, f.owners[1])}))
	}
	return f
}

// deleteOwners deletes the owners, except the one that stays.
func (f *cascade) deleteOwners() {
	f.Helper()
	for i, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
		f.delete(f.owners[i], policy)
	}
}

// expectDone waits until all dependents are as expected.
func (f *cascade) expectDone() {
	f.Helper()
	f.waitForDeletion(f.deleted...)
	f.waitForDeletion(f.owners...)
	for _, o := range f.orphaned {
		f.waitForOwners(o)
	}
	f.expectKept(append(f.orphaned, f.kept...)...)
}

func TestCascade_SurvivesABurstOf(t *testing.T) {
	first := newEnv(t)
	families, faults := map[string]*cascade{}, map[string]*fault{}
	for name, happen := range map[string]faultHandler{
		"409": conflict, "429 with Retry-After": tooManyRequests(time.Second), "500": internalError, "503 from a proxy": unavailable,
		"slow answers": slow(time.Second), "dropped connections": droppedConnection, "lost answers": lostResponse, "answers that are cut off": truncatedResponse,
		"pages from a captive portal": page(http.StatusOK, "text/html", "<html>log in</html>"),
	} {
		w := newEnvOn(t, first.testbed)
		families[name] = w.createCascade(4)
		faults[name] = w.proxy.fail(t, 30, oneIn(2, inNamespace(w.ns)), happen)
	}
	for _, f := range families {
		f.deleteOwners()
	}
	for name, f := range families {
		t.Log(name) // to identify the case in a failure
		faults[name].waitForCount(t, 8)
		f.expectDone()
	}
}

// The owners are of a type that is not watched, so each is read for each
// decision. The owner exists, and no response except one of the API server itself may
// prove that it, or another owner, is absent.
func TestForeign404_DeletesNothing(t *testing.T) {
	w := newEnv(t)
	kind := w.createType(ignoredType)
	notFound := metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "not found"}
	other, group := notFound, notFound
	other.Details = &metav1.StatusDetails{Name: "somebody-else", Group: ignoredType.Group, Kind: "unwatched"}
	group.Details = &metav1.StatusDetails{Name: "owner-6", Group: "example.com", Kind: "unwatched"}
	const partial = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`
	answers := []faultHandler{
		page(http.StatusNotFound, "text/plain", "404 page not found"),
		page(http.StatusNotFound, "text/html", "<html><h1>404</h1></html>"),
		page(http.StatusNotFound, "", ""),
		page(http.StatusNotFound, "application/json", `{"error":"no such route"}`),
		respondStatus(notFound),
		respondStatus(other),
		respondStatus(group),
		page(http.StatusGone, "text/plain", "gone"),
		page(http.StatusOK, "application/json", `{}`),
		page(http.StatusOK, "application/json", partial+`{"name":"x","namespace":"x","uid":"x"}}`),
		page(http.StatusOK, "application/json", partial+`{"name":"owner-10","namespace":"`+w.ns+`"}}`),
		page(http.StatusMovedPermanently, "text/plain", "moved"),
		respondStatus(metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "not yet"}),
		droppedConnection, lostResponse, truncatedResponse,
	}
	var owners, stay, lost []*unstructured.Unstructured
	var faults []*fault
	for i, happen := range answers {
		owner := w.create(objectSpec{name: fmt.Sprintf("owner-%d", i), kind: kind})
		fault := w.proxy.fail(t, -1, forObject(w.ns, owner.GetName(), "get"), happen)
		owners, faults = append(owners, owner), append(faults, fault)
		stay = append(stay, w.create(objectSpec{name: fmt.Sprintf("stays-%d", i), owners: ownerRefs(owner)}))
		lost = append(lost, w.create(objectSpec{name: fmt.Sprintf("lost-%d", i), owners: refsWithUnknownUID(owner)}))
	}
	for i := range answers {
		faults[i].waitForCount(t, 2)
		w.waitForKept(stay[i], "OwnerUnreadable")
		w.waitForKept(lost[i], "OwnerUnreadable")
	}
	w.expectKept(append(stay, lost...)...)
	for _, f := range faults {
		f.Lift()
	}
	w.waitForDeletion(lost...)
	w.expectKept(stay...)
	for _, owner := range owners {
		w.delete(owner, background)
	}
	w.waitForDeletion(stay...)
}

// refsWithUnknownUID returns a reference to an owner with a UID that no object has.
func refsWithUnknownUID(owner *unstructured.Unstructured) []metav1.OwnerReference {
	refs := ownerRefs(owner)
	refs[0].UID = types.UID(uuid.NewUUID())
	return refs
}

// A webhook's 409 looks like that of a precondition. The object has not
// changed, and must not be retried without backoff: no more often than one whose
// writes fail with 500, apart from the attempts of one round.
func TestG55_Permanent409_IsNoHotLoop(t *testing.T) {
	const (
		round  = 5  // attempts between two backoffs after a 409; after a 500 it is one
		rounds = 11 // the backoffs between them add up to 5 s
		slack  = 4  // rounds that come while the others are waited for: the next backoffs add up to 77 s
	)
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	refused := w.create(objectSpec{name: "refused", owners: ownerRefs(owner)})
	failing := w.create(objectSpec{name: "failing", owners: ownerRefs(owner)})
	other := w.create(objectSpec{name: "other", owners: ownerRefs(owner)})
	w.waitForGraph(owner, refused, failing, other)
	refusal := w.proxy.fail(t, -1, forObject(w.ns, "refused", "delete"), conflict)
	failure := w.proxy.fail(t, -1, forObject(w.ns, "failing", "delete"), internalError)
	w.delete(owner, background)
	w.waitForDeletion(other)
	failure.waitForCount(t, rounds)
	if n := refusal.Count(); n > (rounds+slack)*round {
		t.Errorf("%d attempts after a 409, and %d after a 500", n, failure.Count())
	}
	refusal.waitForCount(t, rounds*round)
	for f, o := range map[*fault]*unstructured.Unstructured{refusal: refused, failure: failing} {
		f.Lift()
		w.touch(o)
		w.waitForDeletion(o)
	}
}

// 3.28: a change of the object ends its backoff.
func Test3_28_RefusedWrite_IsRetried_WhenTheObjectChanges(t *testing.T) {
	for name, refusal := range map[string]struct {
		happen   faultHandler
		attempts int // until the backoff exceeds a second
		more     int // attempts due to changes: the backoff allows for six within the timeout
	}{
		"500": {internalError, 10, 15},
		"409": {conflict, 45, 75},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t)
			owner := w.create(objectSpec{name: "owner"})
			refused := w.create(objectSpec{name: "refused", owners: ownerRefs(owner)})
			w.waitForGraph(owner, refused)
			fault := w.proxy.fail(t, -1, forObject(w.ns, "refused", "delete"), refusal.happen)
			w.delete(owner, background)
			fault.waitForCount(t, refusal.attempts)
			want, changes := fault.Count()+refusal.more, 0
			eventually(t, func() error {
				n := fault.Count()
				if n >= want {
					return nil
				}
				changes++
				w.patch(refused, map[string]any{"labels": map[string]string{"touched": fmt.Sprint(changes)}})
				return fmt.Errorf("after %d changes the fault occurred %d times, want %d", changes, n, want)
			})
			fault.Lift()
			w.touch(refused)
			w.waitForDeletion(refused)
		})
	}
}

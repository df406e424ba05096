package act_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

func TestDelete_SendsPreconditions(t *testing.T) {
	for name, c := range map[string]struct {
		action decide.Delete
		want   request
	}{
		"in the background": {decide.Delete{Object: object(podKind), Propagation: metav1.DeletePropagationBackground},
			deletion(podPath, `{"kind":"DeleteOptions","apiVersion":"v1",`+preconditions+`,"propagationPolicy":"Background"}`)},
		"in the foreground": {decide.Delete{Object: object(podKind), Propagation: metav1.DeletePropagationForeground},
			deletion(podPath, `{"kind":"DeleteOptions","apiVersion":"v1",`+preconditions+`,"propagationPolicy":"Foreground"}`)},
		"leaving its dependents": {decide.Delete{Object: object(podKind), Propagation: metav1.DeletePropagationOrphan},
			deletion(podPath, `{"kind":"DeleteOptions","apiVersion":"v1",`+preconditions+`,"propagationPolicy":"Orphan"}`)},
		"with a grace period": {decide.Delete{Object: object(podKind), Propagation: metav1.DeletePropagationBackground, GracePeriodSeconds: ptr.To[int64](0)},
			deletion(podPath, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,`+preconditions+`,"propagationPolicy":"Background"}`)},
		"of a cluster-scoped type": {decide.Delete{Object: object(nodeKind), Propagation: metav1.DeletePropagationBackground},
			deletion(nodePath, `{"kind":"DeleteOptions","apiVersion":"v1",`+preconditions+`,"propagationPolicy":"Background"}`)},
		"of a custom resource": {decide.Delete{Object: object(widgetKind), Propagation: metav1.DeletePropagationBackground},
			deletion(widgetPath, `{"kind":"DeleteOptions","apiVersion":"v1",`+preconditions+`,"propagationPolicy":"Background"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, done)
			want := outcome{act.Done, false, []request{c.want}}
			if diff := cmp.Diff(want, do(t, a, actor(t, a), c.action)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every write has the UID and the resourceVersion of the decision as preconditions, and an
// object without them is not written to.
func TestDo_RequiresUIDAndResourceVersion(t *testing.T) {
	drop := []metav1.OwnerReference{owner("a")}
	for name, change := range map[string]func(*graph.Object){
		"no UID":             func(o *graph.Object) { o.UID = "" },
		"no resourceVersion": func(o *graph.Object) { o.ResourceVersion = "" },
	} {
		o := object(podKind)
		o.Owners[0].BlockOwnerDeletion = ptr.To(true)
		change(&o)
		equivalents := o
		equivalents.Owners = append(slices.Clone(o.Owners), owner("a"))
		for _, action := range []decide.Action{
			decide.Delete{Object: o, Propagation: metav1.DeletePropagationBackground},
			decide.RemoveFinalizer{Object: o, Finalizer: "orphan"},
			decide.Unblock{Object: o, Owner: graph.IDOf("a")},
			decide.DropReferences{Object: equivalents, References: drop},
		} {
			t.Run(fmt.Sprintf("%s: %T", name, action), func(t *testing.T) {
				a := newAPIServer(t, done)
				if diff := cmp.Diff(outcome{act.Failed, true, nil}, do(t, a, actor(t, a), action)); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// Defect 3.2: a delete of an object that has changed is not retried, with or without
// preconditions: it needs another decision.
func TestDelete_Results(t *testing.T) {
	for name, c := range map[string]struct {
		response http.HandlerFunc
		want     act.Result
		failed   bool
	}{
		"done":                                {done, act.Done, false},
		"accepted":                            {body(http.StatusAccepted, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Success"}`), act.Done, false},
		"3.2: 409, it was changed":            {conflict, act.Changed, false},
		"404 that names it: it is gone":       {missing(podPath), act.AlreadyGone, false},
		"404 that names another":              {missing("/api/v1/namespaces/ns/pods/q"), act.Failed, true},
		"404 that names another group's":      {missing("/apis/example.com/v1/namespaces/ns/pods/p"), act.Failed, true},
		"404 of a proxy":                      {proxy404, act.Failed, true},
		"404 of an API without the type":      {body(http.StatusNotFound, "text/plain", "404 page not found"), act.Failed, true},
		"403, refused by a webhook":           {forbidden, act.Failed, true},
		"500":                                 {internalError, act.Failed, true},
		"422":                                 {invalid("propagationPolicy"), act.Failed, true},
		"429":                                 {status(apierrors.NewTooManyRequestsError("later")), act.Failed, true},
		"hung up":                             {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, act.Failed, true},
		"409 by a proxy, which is no verdict": {body(http.StatusConflict, "text/html", "<h1>409</h1>"), act.Changed, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, c.response)
			got := do(t, a, actor(t, a), decide.Delete{Object: object(podKind), Propagation: metav1.DeletePropagationBackground})
			want := outcome{c.want, c.failed, []request{
				deletion(podPath, `{"kind":"DeleteOptions","apiVersion":"v1",`+preconditions+`,"propagationPolicy":"Background"}`),
			}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRemoveFinalizer_TheOnlyOne(t *testing.T) {
	blind := []request{patched(podPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"7","finalizers":null}}`)}
	for name, c := range map[string]struct {
		response http.HandlerFunc
		want     outcome
	}{
		"done":                {done, outcome{act.Done, false, blind}},
		"409":                 {conflict, outcome{act.Changed, false, blind}},
		"G-55: another UID":   {invalid("metadata.uid"), outcome{act.Changed, false, blind}},
		"404 that names it":   {missing(podPath), outcome{act.AlreadyGone, false, blind}},
		"404 of a proxy":      {proxy404, outcome{act.Failed, true, blind}},
		"403 of a webhook":    {forbidden, outcome{act.Failed, true, blind}},
		"500":                 {internalError, outcome{act.Failed, true, blind}},
		"422 of another kind": {invalid("metadata.finalizers"), outcome{act.Failed, true, blind}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, c.response)
			got := do(t, a, actor(t, a), decide.RemoveFinalizer{Object: object(podKind), Finalizer: "foregroundDeletion"})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// G-57: with others on the object, the finalizer is taken out of the list as
// it is at that moment.
func TestRemoveFinalizer_OneOfSeveral(t *testing.T) {
	get := request{Method: "GET", Path: podPath}
	write := func(resourceVersion, finalizers string) request {
		return patched(podPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"`+resourceVersion+`","finalizers":`+finalizers+`}}`)
	}
	again := []http.HandlerFunc{}
	tries := []request{}
	for i := range 4 {
		rv := fmt.Sprint(20 + i)
		again = append(again, live("uid", rv, "x/y", "orphan"), conflict)
		tries = append(tries, get, write(rv, `["x/y"]`))
	}
	for name, c := range map[string]struct {
		responses []http.HandlerFunc
		want      outcome
	}{
		"the others keep their order": {[]http.HandlerFunc{live("uid", "20", "z/z", "orphan", "a/a", "m/m"), done},
			outcome{act.Done, false, []request{get, write("20", `["z/z","a/a","m/m"]`)}}},
		"the others have gone since": {[]http.HandlerFunc{live("uid", "20", "orphan"), done},
			outcome{act.Done, false, []request{get, write("20", "null")}}},
		"it has gone itself": {[]http.HandlerFunc{live("uid", "20", "x/y")},
			outcome{act.AlreadyGone, false, []request{get}}},
		"another GC finalizer took its place (A-09)": {[]http.HandlerFunc{live("uid", "20", "x/y", "foregroundDeletion")},
			outcome{act.AlreadyGone, false, []request{get}}},
		"another object by that name": {[]http.HandlerFunc{live("another", "20", "x/y", "orphan")},
			outcome{act.AlreadyGone, false, []request{get}}},
		"another object by that name, between the read and the write": {
			[]http.HandlerFunc{live("uid", "20", "x/y", "orphan"), invalid("metadata.uid"), live("another", "3", "orphan")},
			outcome{act.AlreadyGone, false, []request{get, write("20", `["x/y"]`), get}}},
		"the object is gone": {[]http.HandlerFunc{missing(podPath)},
			outcome{act.AlreadyGone, false, []request{get}}},
		"404 of a proxy, on the read": {[]http.HandlerFunc{proxy404},
			outcome{act.Failed, true, []request{get}}},
		"404 of a proxy, on the write": {[]http.HandlerFunc{live("uid", "20", "x/y", "orphan"), proxy404},
			outcome{act.Failed, true, []request{get, write("20", `["x/y"]`)}}},
		"500 on the read": {[]http.HandlerFunc{internalError}, outcome{act.Failed, true, []request{get}}},
		"a conflict is tried again, from a new read": {
			[]http.HandlerFunc{live("uid", "20", "x/y", "orphan"), conflict, live("uid", "21", "x/y", "n/n", "orphan"), done},
			outcome{act.Done, false, []request{get, write("20", `["x/y"]`), get, write("21", `["x/y","n/n"]`)}}},
		"four conflicts are enough": {again, outcome{act.Changed, false, tries}},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(podKind)
			o.OtherFinalizers = true
			a := newAPIServer(t, c.responses...)
			got := do(t, a, actor(t, a), decide.RemoveFinalizer{Object: o, Finalizer: "orphan"})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// a second DELETE may have changed the propagation policy. So an object that has
// changed since the decision keeps its hold.
func TestRemoveFinalizer_HoldNeedsAnUnchangedObject(t *testing.T) {
	get := request{Method: "GET", Path: podPath}
	write := patched(podPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"7","finalizers":["x/y","orphan"]}}`)
	for name, c := range map[string]struct {
		responses  []http.HandlerFunc
		regardless bool
		want       outcome
	}{
		"unchanged": {[]http.HandlerFunc{live("uid", "7", "x/y", "orphan", graph.Hold), done}, false,
			outcome{act.Done, false, []request{get, write}}},
		"changed before the read": {[]http.HandlerFunc{live("uid", "8", "x/y", graph.Hold)}, false,
			outcome{act.Changed, false, []request{get}}},
		"changed before the write": {[]http.HandlerFunc{live("uid", "7", "x/y", "orphan", graph.Hold), conflict, live("uid", "8", "x/y", graph.Hold)}, false,
			outcome{act.Changed, false, []request{get, write, get}}},
		"changed, with Regardless": {[]http.HandlerFunc{live("uid", "8", "x/y", graph.Hold), done}, true,
			outcome{act.Done, false, []request{get, patched(podPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"8","finalizers":["x/y"]}}`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(podKind)
			o.OtherFinalizers, o.Orphan, o.Held = true, true, true
			a := newAPIServer(t, c.responses...)
			got := do(t, a, actor(t, a), decide.RemoveFinalizer{Object: o, Finalizer: graph.Hold, IgnoreChanges: c.regardless})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Of the finalizers that the graph knows, the ones that stay are known without a read.
func TestRemoveFinalizer_ReadsNothingIfTheOthersAreKnown(t *testing.T) {
	get := request{Method: "GET", Path: podPath}
	write := func(version, finalizers string) request {
		return patched(podPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"`+version+`","finalizers":`+finalizers+`}}`)
	}
	both := []http.HandlerFunc{live("uid", "7", "orphan", graph.Hold, "foregroundDeletion"), done}
	for name, c := range map[string]struct {
		object     func(*graph.Object)
		finalizer  string
		regardless bool
		responses  []http.HandlerFunc
		want       outcome
	}{
		"a hold before orphan": {func(o *graph.Object) { o.Held, o.Orphan = true, true }, graph.Hold, false, []http.HandlerFunc{done},
			outcome{act.Done, false, []request{write("7", `["orphan"]`)}}},
		"a hold before foregroundDeletion": {func(o *graph.Object) { o.Held, o.Foreground = true, true }, graph.Hold, true, []http.HandlerFunc{done},
			outcome{act.Done, false, []request{write("7", `["foregroundDeletion"]`)}}},
		"a hold of an object that has changed": {func(o *graph.Object) { o.Held, o.Orphan = true, true }, graph.Hold, false, []http.HandlerFunc{conflict},
			outcome{act.Changed, false, []request{write("7", `["orphan"]`)}}},
		"a hold of an object that has changed, regardless": {func(o *graph.Object) { o.Held, o.Foreground = true, true }, graph.Hold, true,
			[]http.HandlerFunc{conflict, live("uid", "8", graph.Hold), done},
			outcome{act.Done, false, []request{write("7", `["foregroundDeletion"]`), get, write("8", "null")}}},
		"another finalizer of an object that has changed": {func(o *graph.Object) { o.Foreground, o.Orphan = true, true }, "orphan", false,
			[]http.HandlerFunc{conflict, live("uid", "8", "orphan", "example.com/new"), done},
			outcome{act.Done, false, []request{write("7", `["foregroundDeletion"]`), get, write("8", `["example.com/new"]`)}}},
		"two that stay, whose order is not known": {func(o *graph.Object) { o.Held, o.Orphan, o.Foreground = true, true, true }, graph.Hold, false, both,
			outcome{act.Done, false, []request{get, write("7", `["orphan","foregroundDeletion"]`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(podKind)
			c.object(&o)
			a := newAPIServer(t, c.responses...)
			got := do(t, a, actor(t, a), decide.RemoveFinalizer{Object: o, Finalizer: c.finalizer, IgnoreChanges: c.regardless})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What the API server has returned is known without a read, unless it is for another object.
func TestSaveState_PassesOnWhatWasWritten(t *testing.T) {
	for name, c := range map[string]struct {
		response http.HandlerFunc
		want     string // the resourceVersion that was passed on
	}{
		"the object":                  {live("uid", "8", graph.Hold), "8"},
		"another object":              {live("other", "8", graph.Hold), ""},
		"without a resourceVersion":   {live("uid", ""), ""},
		"it has changed":              {conflict, ""},
		"the object is gone":          {missing(podPath), ""},
		"the API server has an error": {internalError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, c.response)
			actor, got := actor(t, a), ""
			actor.OnStateSaved = func(o graph.Object, after *metav1.PartialObjectMetadata) {
				if got = o.ResourceVersion; !o.Held || o.Kind != podKind || after.ResourceVersion != got {
					t.Errorf("passed on %+v, %+v", o, after)
				}
			}
			do(t, a, actor, decide.SaveState{Object: object(podKind)})
			if got != c.want {
				t.Errorf("resourceVersion %q was passed on, want %q", got, c.want)
			}
		})
	}
}

// every returns an action of each type.
func every(o graph.Object) []decide.Action {
	o.Owners[0].BlockOwnerDeletion = ptr.To(true)
	held := o
	held.OtherFinalizers = true
	return []decide.Action{
		decide.Delete{Object: o, Propagation: metav1.DeletePropagationBackground},
		decide.DropReferences{Object: o, References: o.Owners[:1]},
		decide.RemoveFinalizer{Object: o, Finalizer: "orphan"},
		decide.RemoveFinalizer{Object: held, Finalizer: "orphan"},
		decide.Unblock{Object: o, Owner: graph.IDOf("a")},
	}
}

func TestDo_FailsForAnUnservedType(t *testing.T) {
	for _, action := range every(object(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"})) {
		t.Run(fmt.Sprintf("%T", action), func(t *testing.T) {
			a := newAPIServer(t, done)
			if diff := cmp.Diff(outcome{act.Failed, true, nil}, do(t, a, actor(t, a), action)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDo_NilActionIsDone(t *testing.T) {
	a := newAPIServer(t, done)
	if diff := cmp.Diff(outcome{act.Done, false, nil}, do(t, a, actor(t, a), nil)); diff != "" {
		t.Error(diff)
	}
}

// Defect 3.5: the version is looked up for each write, and may differ from the one in which
// the object was seen.
func TestDo_LooksUpTheVersionPerCall(t *testing.T) {
	a := newAPIServer(t, done)
	client, err := metadata.NewForConfig(&rest.Config{Host: a.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	now := served("v1")
	actor := act.New(client, func() *catalog.Catalog { return now }, keys)
	o := object(widgetKind)
	o.Kind.Version = "v1alpha1"
	for _, version := range []string{"v1", "v2"} {
		now = served(version)
		do(t, a, actor, decide.Delete{Object: o, Propagation: metav1.DeletePropagationBackground})
	}
	var got []string
	for _, r := range a.requests() {
		got = append(got, r.Path)
	}
	want := []string{widgetPath, strings.Replace(widgetPath, "v1", "v2", 1)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Concurrent workers, for the race detector.
func TestDo_ConcurrentUse(t *testing.T) {
	a := newAPIServer(t, unsupportedMediaType, done)
	actor := actor(t, a)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for _, action := range every(object(widgetKind)) {
				_, _ = actor.Do(t.Context(), action)
			}
		})
	}
	all.Wait()
}

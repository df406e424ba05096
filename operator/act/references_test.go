package act_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

func TestDropReferences(t *testing.T) {
	shared := object(podKind)
	shared.Owners = []metav1.OwnerReference{owner("a"), {APIVersion: "v1", Kind: "Secret", Name: "wrong", UID: "a"}}
	wrong := shared.Owners[1:]
	byUID := patched(podPath, strategic, `{"metadata":{"uid":"uid","resourceVersion":"7","ownerReferences":[{"$patch":"delete","uid":"a"},{"$patch":"delete","uid":"c"}]}}`)
	widgets := func(refs string) request {
		return patched(widgetPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"7","ownerReferences":`+refs+`}}`)
	}
	widgetsByUID := func(uids ...string) request {
		var removals []string
		for _, uid := range uids {
			removals = append(removals, fmt.Sprintf(`{"$patch":"delete","uid":"%s"}`, uid))
		}
		return patched(widgetPath, strategic, `{"metadata":{"uid":"uid","resourceVersion":"7","ownerReferences":[`+strings.Join(removals, ",")+`]}}`)
	}
	for name, c := range map[string]struct {
		object    graph.Object
		drop      []metav1.OwnerReference
		responses []http.HandlerFunc
		want      outcome
	}{
		"scenario 11, G-55: by UID, and the rest stays": {object(podKind), []metav1.OwnerReference{owner("a"), owner("c")}, []http.HandlerFunc{done},
			outcome{act.Done, false, []request{byUID}}},
		"G-55: another object by that name": {object(podKind), []metav1.OwnerReference{owner("a"), owner("c")}, []http.HandlerFunc{invalid("metadata.uid")},
			outcome{act.Changed, false, []request{byUID}}},
		"422 about something else": {object(podKind), []metav1.OwnerReference{owner("a"), owner("c")}, []http.HandlerFunc{invalid("metadata.ownerReferences")},
			outcome{act.Failed, true, []request{byUID}}},
		"scenario 13: 409": {object(podKind), []metav1.OwnerReference{owner("a"), owner("c")}, []http.HandlerFunc{conflict},
			outcome{act.Changed, false, []request{byUID}}},
		"G-66: 404 that names it": {object(podKind), []metav1.OwnerReference{owner("a"), owner("c")}, []http.HandlerFunc{missing(podPath)},
			outcome{act.AlreadyGone, false, []request{byUID}}},
		"404 of a proxy": {object(podKind), []metav1.OwnerReference{owner("a"), owner("c")}, []http.HandlerFunc{proxy404},
			outcome{act.Failed, true, []request{byUID}}},
		"500": {object(podKind), []metav1.OwnerReference{owner("a"), owner("c")}, []http.HandlerFunc{internalError},
			outcome{act.Failed, true, []request{byUID}}},
		"none of them there": {object(podKind), []metav1.OwnerReference{owner("z")}, []http.HandlerFunc{done},
			outcome{act.AlreadyGone, false, nil}},

		"G-56: 415, then the whole list that stays": {object(widgetKind), []metav1.OwnerReference{owner("b")}, []http.HandlerFunc{unsupportedMediaType, done},
			outcome{act.Done, false, []request{widgetsByUID("b"), widgets("[" + list("a", "c") + "]")}}},
		"G-56: 415, and nothing stays": {object(widgetKind), []metav1.OwnerReference{owner("a"), owner("b"), owner("c")}, []http.HandlerFunc{unsupportedMediaType, done},
			outcome{act.Done, false, []request{widgetsByUID("a", "b", "c"), widgets("null")}}},
		"G-56: 415, then 409": {object(widgetKind), []metav1.OwnerReference{owner("b")}, []http.HandlerFunc{unsupportedMediaType, conflict},
			outcome{act.Changed, false, []request{widgetsByUID("b"), widgets("[" + list("a", "c") + "]")}}},

		"G-37: a UID shared with a valid reference needs the whole list": {shared, wrong, []http.HandlerFunc{done},
			outcome{act.Done, false, []request{patched(podPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"7","ownerReferences":[`+list("a")+`]}}`)}}},
		"both references with one UID go by UID": {shared, shared.Owners, []http.HandlerFunc{done},
			outcome{act.Done, false, []request{patched(podPath, strategic, `{"metadata":{"uid":"uid","resourceVersion":"7","ownerReferences":[{"$patch":"delete","uid":"a"},{"$patch":"delete","uid":"a"}]}}`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, c.responses...)
			got := do(t, a, actor(t, a), decide.DropReferences{Object: c.object, References: c.drop})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// G-56: whether a type supports strategic merge patch is tried once.
func TestDropReferences_RemembersTypesWithoutStrategicMerge(t *testing.T) {
	a := newAPIServer(t, unsupportedMediaType, done)
	actor := actor(t, a)
	drop := func(kind schema.GroupVersionKind) {
		t.Helper()
		if got := do(t, a, actor, decide.DropReferences{Object: object(kind), References: []metav1.OwnerReference{owner("a")}}); got.Result != act.Done {
			t.Errorf("%s: %+v", kind.Kind, got)
		}
	}
	drop(widgetKind)
	drop(widgetKind)
	drop(podKind)
	var got []string
	for _, r := range a.requests() {
		got = append(got, r.Path+" "+r.Type)
	}
	want := []string{widgetPath + " " + strategic, widgetPath + " " + merge, widgetPath + " " + merge, podPath + " " + strategic}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// 3.17, G-66: an owner orphans a custom resource that another client writes often: the list
// is recomputed from a read. A reference that was corrected meanwhile stays.
func TestDropReferences_OrphansABusyCustomResource(t *testing.T) {
	get := request{Method: "GET", Path: widgetPath}
	write := func(resourceVersion, refs string) request {
		return patched(widgetPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"`+resourceVersion+`","ownerReferences":`+refs+`}}`)
	}
	tries := []request{write("7", "["+list("a", "c")+"]"), get, write("20", "["+list("a", "d")+"]")}
	for name, c := range map[string]struct {
		responses []http.HandlerFunc
		want      outcome
	}{
		"new references stay": {[]http.HandlerFunc{conflict, owned("uid", "20", "a", "b", "d"), done},
			outcome{act.Done, false, tries}},
		"it is read until there is no conflict": {
			[]http.HandlerFunc{conflict, owned("uid", "20", "a", "b", "d"), conflict, owned("uid", "21", "b"), done},
			outcome{act.Done, false, append(slices.Clone(tries), get, write("21", "null"))}},
		"the reference has gone since": {[]http.HandlerFunc{conflict, owned("uid", "20", "a", "c")},
			outcome{act.AlreadyGone, false, tries[:2]}},
		"another object by that name": {[]http.HandlerFunc{conflict, owned("another", "20", "b")},
			outcome{act.AlreadyGone, false, tries[:2]}},
		"404 of a proxy": {[]http.HandlerFunc{conflict, proxy404}, outcome{act.Failed, true, tries[:2]}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, append([]http.HandlerFunc{unsupportedMediaType}, c.responses...)...)
			got := do(t, a, actor(t, a), decide.DropReferences{Object: object(widgetKind), References: []metav1.OwnerReference{owner("b")}, Orphan: true})
			got.Requests = got.Requests[1:] // the strategic merge patch
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// owned is an object with owners, as the API server has it.
func owned(uid, resourceVersion string, owners ...string) http.HandlerFunc {
	o := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid), ResourceVersion: resourceVersion},
	}
	for _, name := range owners {
		o.OwnerReferences = append(o.OwnerReferences, owner(name))
	}
	return encoded(http.StatusOK, o)
}

func TestUnblock(t *testing.T) {
	o := object(podKind)
	o.Owners[0].BlockOwnerDeletion = ptr.To(true)
	o.Owners[1].BlockOwnerDeletion, o.Owners[1].Controller = ptr.To(true), ptr.To(true)
	o.Owners[2].BlockOwnerDeletion = ptr.To(false)
	ref := func(uid, rest string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":"%s","uid":"%s"%s}`, uid, uid, rest)
	}
	whole := []request{patched(podPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"7","ownerReferences":[`+
		ref("a", `,"blockOwnerDeletion":true`)+","+ref("b", `,"controller":true,"blockOwnerDeletion":false`)+","+ref("c", `,"blockOwnerDeletion":false`)+`]}}`)}
	for name, c := range map[string]struct {
		owner    string
		response http.HandlerFunc
		want     outcome
	}{
		"scenario 12: true becomes false, and of one owner alone": {"b", done, outcome{act.Done, false, whole}},
		"scenario 12: false stays as it is":                       {"c", done, outcome{act.AlreadyGone, false, nil}},
		"scenario 12: no such owner":                              {"z", done, outcome{act.AlreadyGone, false, nil}},
		"409":                                                     {"b", conflict, outcome{act.Changed, false, whole}},
		"404 that names it":                                       {"b", missing(podPath), outcome{act.AlreadyGone, false, whole}},
		"404 of a proxy":                                          {"b", proxy404, outcome{act.Failed, true, whole}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, c.response)
			got := do(t, a, actor(t, a), decide.Unblock{Object: o, Owner: graph.IDOf(types.UID(c.owner))})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if *o.Owners[1].BlockOwnerDeletion != true {
		t.Error("the action's object was modified")
	}
}

// The graph does not keep all references of an object that has very many. An incomplete
// list must not be written back.
func TestDropReferences_ReadsTruncatedReferences(t *testing.T) {
	whole := func(resourceVersion string) http.HandlerFunc {
		o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}}
		o.Namespace, o.Name, o.UID, o.ResourceVersion = "ns", "p", "uid", resourceVersion
		for _, uid := range []string{"a", "b", "c", "d"} {
			o.OwnerReferences = append(o.OwnerReferences, owner(uid))
		}
		o.OwnerReferences[1].BlockOwnerDeletion = ptr.To(true)
		return encoded(http.StatusOK, o)
	}
	o := object(widgetKind)
	o.Truncated = true
	o.Owners[1].BlockOwnerDeletion = ptr.To(true)
	read := request{"GET", widgetPath, "", ""}
	byUID := patched(widgetPath, strategic, `{"metadata":{"uid":"uid","ownerReferences":[{"$patch":"delete","uid":"b"}]}}`)
	unblocked := strings.Replace(list("a", "b", "c", "d"), `"uid":"b"`, `"uid":"b","blockOwnerDeletion":false`, 1)
	byList := func(refs string) request {
		return patched(widgetPath, merge, `{"metadata":{"uid":"uid","resourceVersion":"7","ownerReferences":[`+refs+`]}}`)
	}
	leave, unblock := decide.DropReferences{Object: o, References: o.Owners[1:2], Orphan: true}, decide.Unblock{Object: o, Owner: graph.IDOf("b")}
	for name, c := range map[string]struct {
		action    decide.Action
		responses []http.HandlerFunc
		want      outcome
	}{
		"orphaning":            {leave, []http.HandlerFunc{whole("7"), unsupportedMediaType, done}, outcome{act.Done, false, []request{read, byUID, byList(list("a", "c", "d"))}}},
		"unblocking":           {unblock, []http.HandlerFunc{whole("7"), done}, outcome{act.Done, false, []request{read, byList(unblocked)}}},
		"it has changed since": {leave, []http.HandlerFunc{whole("8")}, outcome{act.Changed, false, []request{read}}},
		"it is gone":           {leave, []http.HandlerFunc{missing(widgetPath)}, outcome{act.AlreadyGone, false, []request{read}}},
		"it can't be read":     {unblock, []http.HandlerFunc{internalError}, outcome{act.Failed, true, []request{read}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, c.responses...)
			if diff := cmp.Diff(c.want, do(t, a, actor(t, a), c.action)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Removing thousands of references from thousands is fast.
func TestDropReferences_Thousands(t *testing.T) {
	o := object(podKind)
	for i := range 20_000 {
		o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint(i), UID: "same"})
	}
	a := newAPIServer(t, done)
	start := time.Now()
	if got := do(t, a, actor(t, a), decide.DropReferences{Object: o, References: o.Owners[10_000:]}); got.Result != act.Done {
		t.Errorf("got %s", got.Result)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

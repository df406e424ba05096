package server

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// byDefault stands for what a type has when nobody wishes anything.
const byDefault = "default"

// outcomes are the finalizers that a wish leaves on an object which had none,
// or one of the two, before.
type outcomes struct{ none, hadOrphan, hadForeground string }

var wishes = []struct {
	name    string
	options metav1.DeleteOptions
	want    outcomes
}{
	{"none", by(""), outcomes{byDefault, orphanFinalizer, foregroundFinal}},
	{"Background", by(backgroundPolicy), outcomes{}},
	{"Foreground", by(foregroundPolicy), outcomes{foregroundFinal, foregroundFinal, foregroundFinal}},
	{"Orphan", by(orphanPolicy), outcomes{orphanFinalizer, orphanFinalizer, orphanFinalizer}},
	{"orphanDependents: true", orphanDependents(true), outcomes{orphanFinalizer, orphanFinalizer, orphanFinalizer}},
	{"orphanDependents: false", orphanDependents(false), outcomes{}},
}

func TestA01_WhichFinalizerADeleteLeavesOnAnObject(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		kind      kind
		byDefault string
	}{
		{configMap, ""}, {a.define(), ""}, {deployment, ""}, {pod, ""},
		{replicationController, orphanFinalizer}, {job, orphanFinalizer},
	} {
		t.Run(c.kind.String(), func(t *testing.T) { a.with(t).decides(c.kind, c.byDefault, nil) })
	}
}

// Namespaces have a copy of the rule of their own, which differs in one row.
func TestA03_ANamespaceIsNotTheSameWithoutOrphans(t *testing.T) {
	newAPI(t).decides(namespace, "", map[string]outcomes{
		"orphanDependents: false": {foregroundFinal, foregroundFinal, foregroundFinal},
	})
}

// with is the same for a subtest.
func (a *api) with(t *testing.T) *api {
	b := *a
	b.T = t
	return &b
}

// decides tries all wishes on a type.
func (a *api) decides(k kind, otherwise string, except map[string]outcomes) {
	a.Helper()
	for _, wish := range wishes {
		want, ok := except[wish.name]
		if !ok {
			want = wish.want
		}
		for had, finalizer := range map[string]string{"": want.none, orphanFinalizer: want.hadOrphan, foregroundFinal: want.hadForeground} {
			if finalizer == byDefault {
				finalizer = otherwise
			}
			a.Run(fmt.Sprintf("%s of one with %q", wish.name, had), func(t *testing.T) {
				b := a.with(t)
				before := []string{hold}
				if had != "" {
					before = append(before, had)
				}
				o := b.make(k, before...)
				b.delete(k, o, wish.options)
				b.finalizers(k, o, finalizer)
			})
		}
	}
}

func TestA02_TheDefaultOfEachType(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		kind    kind
		want    string
		warning bool
	}{
		{configMap, "", false}, {deployment, "", false}, {replicaSet, "", false}, {daemonSet, "", false},
		{statefulSet, "", false}, {cronJob, "", false},
		{replicationController, orphanFinalizer, false}, {job, orphanFinalizer, true},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			b := a.with(t)
			warnings := b.listen()
			o := b.make(c.kind, hold)
			b.delete(c.kind, o, by(""))
			b.finalizers(c.kind, o, c.want)
			if warned := len(*warnings) != 0; warned != c.warning {
				t.Errorf("warnings: %q", *warnings)
			}
		})
	}
	for _, group := range []string{"", "events.k8s.io"} {
		event := a.event(group)
		t.Run("events of "+event.String()+" keep neither", func(t *testing.T) {
			b := a.with(t)
			for _, had := range []string{orphanFinalizer, foregroundFinal} {
				for _, policy := range []metav1.DeletionPropagation{"", backgroundPolicy, foregroundPolicy, orphanPolicy} {
					o := object(event, hold, had)
					o.SetNamespace(b.ns)
					b.create(event, o)
					b.delete(event, o, by(policy))
					b.finalizers(event, o)
				}
			}
		})
	}
}

// listen collects the warnings that come with answers from now on.
func (a *api) listen() *[]string {
	a.Helper()
	warnings := &heard{}
	config := rest.CopyConfig(a.config)
	config.WarningHandler = warnings
	a.objects = dynamic.NewForConfigOrDie(config)
	return &warnings.texts
}

type heard struct{ texts []string }

func (h *heard) HandleWarningHeader(_ int, _ string, text string) { h.texts = append(h.texts, text) }

func TestA07_TheAnswerIs202OnlyForTheOldWishThatTakesTime(t *testing.T) {
	a := newAPI(t)
	for name, c := range map[string]struct {
		options metav1.DeleteOptions
		held    bool
		want    answer
	}{
		"orphanDependents: false, held":       {orphanDependents(false), true, answer{http.StatusAccepted, "ConfigMap"}},
		"orphanDependents: false, not held":   {orphanDependents(false), false, answer{http.StatusOK, "Status"}},
		"orphanDependents: true, which holds": {orphanDependents(true), false, answer{http.StatusOK, "ConfigMap"}},
		"Background, held":                    {by(backgroundPolicy), true, answer{http.StatusOK, "ConfigMap"}},
		"Background, not held":                {by(backgroundPolicy), false, answer{http.StatusOK, "Status"}},
		"Foreground, which holds":             {by(foregroundPolicy), false, answer{http.StatusOK, "ConfigMap"}},
		"Orphan, which holds":                 {by(orphanPolicy), false, answer{http.StatusOK, "ConfigMap"}},
		"no wish, held":                       {by(""), true, answer{http.StatusOK, "ConfigMap"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := a.with(t)
			var o *unstructured.Unstructured
			if c.held {
				o = b.make(configMap, hold)
			} else {
				o = b.make(configMap)
			}
			if diff := cmp.Diff(c.want, b.deleteRaw(o, c.options)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

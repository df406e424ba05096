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

// typeDefault represents the finalizers of a type's default policy.
const typeDefault = "default"

// outcomes are the finalizers that a delete leaves on an object that had none of the two,
// or one, before.
type outcomes struct{ none, hadOrphan, hadForeground string }

var deleteCases = []struct {
	name    string
	options metav1.DeleteOptions
	want    outcomes
}{
	{"none", deleteOptions(""), outcomes{typeDefault, orphanFinalizer, foregroundFinal}},
	{"Background", deleteOptions(backgroundPolicy), outcomes{}},
	{"Foreground", deleteOptions(foregroundPolicy), outcomes{foregroundFinal, foregroundFinal, foregroundFinal}},
	{"Orphan", deleteOptions(orphanPolicy), outcomes{orphanFinalizer, orphanFinalizer, orphanFinalizer}},
	{"orphanDependents: true", orphanDependents(true), outcomes{orphanFinalizer, orphanFinalizer, orphanFinalizer}},
	{"orphanDependents: false", orphanDependents(false), outcomes{}},
}

func TestA01_FinalizerThatADeleteAdds(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		kind      kind
		byDefault string
	}{
		{configMap, ""}, {a.createType(), ""}, {deployment, ""}, {pod, ""},
		{replicationController, orphanFinalizer}, {job, orphanFinalizer},
	} {
		t.Run(c.kind.String(), func(t *testing.T) { a.forSubtest(t).testPolicies(c.kind, c.byDefault, nil) })
	}
}

// Namespaces have their own copy of the rule, which differs in one row.
func TestA03_Namespaces_Differ(t *testing.T) {
	newAPI(t).testPolicies(namespace, "", map[string]outcomes{
		"orphanDependents: false": {foregroundFinal, foregroundFinal, foregroundFinal},
	})
}

// forSubtest returns the api for a subtest.
func (a *api) forSubtest(t *testing.T) *api {
	b := *a
	b.T = t
	return &b
}

// testPolicies tests all options on a type.
func (a *api) testPolicies(k kind, otherwise string, except map[string]outcomes) {
	a.Helper()
	for _, option := range deleteCases {
		want, ok := except[option.name]
		if !ok {
			want = option.want
		}
		for had, finalizer := range map[string]string{"": want.none, orphanFinalizer: want.hadOrphan, foregroundFinal: want.hadForeground} {
			if finalizer == typeDefault {
				finalizer = otherwise
			}
			a.Run(fmt.Sprintf("%s of an object with %q", option.name, had), func(t *testing.T) {
				b := a.forSubtest(t)
				before := []string{testFinalizer}
				if had != "" {
					before = append(before, had)
				}
				o := b.createNew(k, before...)
				b.delete(k, o, option.options)
				b.expectFinalizers(k, o, finalizer)
			})
		}
	}
}

func TestA02_DefaultPolicyOfEachType(t *testing.T) {
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
			b := a.forSubtest(t)
			warnings := b.collectWarnings()
			o := b.createNew(c.kind, testFinalizer)
			b.delete(c.kind, o, deleteOptions(""))
			b.expectFinalizers(c.kind, o, c.want)
			if warned := len(*warnings) != 0; warned != c.warning {
				t.Errorf("warnings: %q", *warnings)
			}
		})
	}
	for _, group := range []string{"", "events.k8s.io"} {
		event := a.eventKind(group)
		t.Run("events of "+event.String()+" keep neither", func(t *testing.T) {
			b := a.forSubtest(t)
			for _, had := range []string{orphanFinalizer, foregroundFinal} {
				for _, policy := range []metav1.DeletionPropagation{"", backgroundPolicy, foregroundPolicy, orphanPolicy} {
					o := object(event, testFinalizer, had)
					o.SetNamespace(b.ns)
					b.create(event, o)
					b.delete(event, o, deleteOptions(policy))
					b.expectFinalizers(event, o)
				}
			}
		})
	}
}

// collectWarnings collects the warnings of responses from now on.
func (a *api) collectWarnings() *[]string {
	a.Helper()
	warnings := &warningRecorder{}
	config := rest.CopyConfig(a.config)
	config.WarningHandler = warnings
	a.objects = dynamic.NewForConfigOrDie(config)
	return &warnings.texts
}

type warningRecorder struct{ texts []string }

func (h *warningRecorder) HandleWarningHeader(_ int, _ string, text string) {
	h.texts = append(h.texts, text)
}

func TestA07_Status202_OnlyForOrphanDependents(t *testing.T) {
	a := newAPI(t)
	for name, c := range map[string]struct {
		options metav1.DeleteOptions
		held    bool
		want    deleteResult
	}{
		"orphanDependents: false, held":       {orphanDependents(false), true, deleteResult{http.StatusAccepted, "ConfigMap"}},
		"orphanDependents: false, not held":   {orphanDependents(false), false, deleteResult{http.StatusOK, "Status"}},
		"orphanDependents: true, which holds": {orphanDependents(true), false, deleteResult{http.StatusOK, "ConfigMap"}},
		"Background, held":                    {deleteOptions(backgroundPolicy), true, deleteResult{http.StatusOK, "ConfigMap"}},
		"Background, not held":                {deleteOptions(backgroundPolicy), false, deleteResult{http.StatusOK, "Status"}},
		"Foreground, which holds":             {deleteOptions(foregroundPolicy), false, deleteResult{http.StatusOK, "ConfigMap"}},
		"Orphan, which holds":                 {deleteOptions(orphanPolicy), false, deleteResult{http.StatusOK, "ConfigMap"}},
		"no policy, held":                     {deleteOptions(""), true, deleteResult{http.StatusOK, "ConfigMap"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := a.forSubtest(t)
			var o *unstructured.Unstructured
			if c.held {
				o = b.createNew(configMap, testFinalizer)
			} else {
				o = b.createNew(configMap)
			}
			if diff := cmp.Diff(c.want, b.deleteRaw(o, c.options)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

package candidate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/operator/candidate"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// object returns an object that was created on May 1, 2026.
func object(t *testing.T, apiVersion, kind, namespace, name, rest string) *unstructured.Unstructured {
	t.Helper()
	o := parse(t, "{"+rest+"}")
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID("u")
	if err := unstructured.SetNestedField(o.Object, "2026-05-01T12:00:00Z", "metadata", "creationTimestamp"); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestP02_WhatRetentionNeverTouches(t *testing.T) {
	controlled := `metadata: {ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: c, controller: true}]}`
	for claim, c := range map[string]struct {
		object *unstructured.Unstructured
		want   string // part of why; "": it may be removed
	}{
		"an object in kube-system":              {object(t, "v1", "ConfigMap", "kube-system", "a", ""), "it is in namespace kube-system"},
		"an object in the operator's namespace": {object(t, "v1", "ConfigMap", "gleaner-system", "a", ""), "it is in namespace gleaner-system"},
		"namespace kube-system":                 {object(t, "v1", "Namespace", "", "kube-system", ""), "the cluster or Gleaner needs it"},
		"the operator's namespace":              {object(t, "v1", "Namespace", "", "gleaner-system", ""), "the cluster or Gleaner needs it"},
		"namespace default":                     {object(t, "v1", "Namespace", "", "default", ""), "the cluster or Gleaner needs it"},
		"another namespace":                     {object(t, "v1", "Namespace", "", "preview-7", ""), ""},
		"a policy of Gleaner":                   {object(t, "gleaner.dev/v1alpha1", "GCPolicy", "shop", "p", ""), "it configures Gleaner"},
		"what a controller controls":            {object(t, "batch/v1", "Job", "shop", "j", controlled), "CronJob nightly controls it"},
		"kube-root-ca.crt":                      {object(t, "v1", "ConfigMap", "shop", "kube-root-ca.crt", ""), "each namespace has it"},
		"another ConfigMap":                     {object(t, "v1", "ConfigMap", "shop", "settings", ""), ""},
		"ServiceAccount default":                {object(t, "v1", "ServiceAccount", "shop", "default", ""), "each namespace has it"},
		"another object with that name":         {object(t, "v1", "ConfigMap", "shop", "default", ""), ""},
		"the token of a ServiceAccount":         {object(t, "v1", "Secret", "shop", "t", "type: kubernetes.io/service-account-token"), "the token of a ServiceAccount"},
		"a bootstrap token":                     {object(t, "v1", "Secret", "shop", "t", "type: bootstrap.kubernetes.io/token"), "nodes join with it"},
		"the current release of Helm":           {object(t, "v1", "Secret", "shop", "r", "type: helm.sh/release.v1, metadata: {labels: {status: deployed}}"), "the current release of Helm"},
		"a release of Helm in progress":         {object(t, "v1", "Secret", "shop", "r", "type: helm.sh/release.v1, metadata: {labels: {status: pending-upgrade}}"), "one in progress"},
		"a release of Helm without a status":    {object(t, "v1", "Secret", "shop", "r", "type: helm.sh/release.v1"), "one in progress"},
		"a former release of Helm":              {object(t, "v1", "Secret", "shop", "r", "type: helm.sh/release.v1, metadata: {labels: {status: superseded}}"), ""},
		"a Secret with a number as its type":    {object(t, "v1", "Secret", "shop", "r", "type: 7"), "its type can't be read"},
		"a node":                                {object(t, "v1", "Node", "", "n", ""), "it stands for a machine"},
		"a Job":                                 {object(t, "batch/v1", "Job", "shop", "j", ""), ""},
	} {
		got := candidate.Of(c.object, candidate.Options{Namespace: "gleaner-system"})
		if (c.want == "") != (got.Protected == "") || !strings.Contains(got.Protected, c.want) {
			t.Errorf("%s is protected by %q; want %q", claim, got.Protected, c.want)
		}
	}
	job := object(t, "batch/v1", "Job", "shop", "j", controlled)
	if got := candidate.Of(job, candidate.Options{IncludeControlled: true}); got.Protected != "" {
		t.Errorf("with includeControlled, a controlled object is protected by %q", got.Protected)
	}
	job.SetUID("")
	if got := candidate.Of(job, candidate.Options{IncludeControlled: true}); got.Protected == "" {
		t.Error("an object without a UID may be removed")
	}
	if got := candidate.Of(object(t, "batch/v1", "Job", "shop", "j", `metadata: {annotations: {gleaner.dev/keep: "true"}}`), candidate.Options{}); !got.Pinned {
		t.Error("the annotation gleaner.dev/keep has no effect")
	}
	if got := candidate.Of(object(t, "batch/v1", "Job", "shop", "j", `metadata: {deletionTimestamp: "2026-05-02T12:00:00Z"}`), candidate.Options{}); !got.Terminating {
		t.Error("an object that is being deleted is not terminating")
	}
}

func TestP03_WhatMayBeUsedIsKept(t *testing.T) {
	by := func(complete bool, user string) candidate.Uses {
		return candidate.Uses{Complete: complete, User: func(kind schema.GroupKind, namespace, name string) string {
			if kind.Kind == "ConfigMap" && namespace == "shop" && name == "settings" {
				return user
			}
			return ""
		}}
	}
	for claim, c := range map[string]struct {
		uses candidate.Uses
		want retain.Use
	}{
		"a Pod uses it":           {by(true, "Pod shop/web"), retain.Used},
		"nothing uses it":         {by(true, ""), retain.Unused},
		"not everything was read": {by(false, ""), retain.UseUnknown},
		"nothing was read":        {candidate.Uses{}, retain.UseUnknown},
	} {
		if got := c.uses.Of(schema.GroupKind{Kind: "ConfigMap"}, "shop", "settings"); got != c.want {
			t.Errorf("%s: %d; want %d", claim, got, c.want)
		}
	}
	for claim, c := range map[string]struct {
		object *unstructured.Unstructured
		want   bool
	}{
		"a ConfigMap":                   {object(t, "v1", "ConfigMap", "shop", "settings", ""), true},
		"a Secret":                      {object(t, "v1", "Secret", "shop", "s", ""), true},
		"a claim":                       {object(t, "v1", "PersistentVolumeClaim", "shop", "s", ""), true},
		"a ServiceAccount":              {object(t, "v1", "ServiceAccount", "shop", "s", ""), true},
		"a kind that nothing refers to": {object(t, "batch/v1", "Job", "shop", "j", ""), false},
		"a former release of Helm":      {object(t, "v1", "Secret", "shop", "r", "type: helm.sh/release.v1, metadata: {labels: {status: superseded}}"), false},
		"an object of the same kind in another group": {object(t, "example.com/v1", "Secret", "shop", "s", ""), false},
	} {
		got := candidate.Of(c.object, candidate.Options{})
		if want := map[bool]retain.Use{true: retain.UseUnknown, false: retain.Unused}[c.want]; got.Referred != c.want || got.Use != want {
			t.Errorf("%s: referred to %t, use %d", claim, got.Referred, got.Use)
		}
	}
}

func TestP01_Groups(t *testing.T) {
	owned := object(t, "batch/v1", "Job", "shop", "j", `metadata: {labels: {app: web}, ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: a}]}`)
	controlled := object(t, "batch/v1", "Job", "shop", "j", `metadata: {ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: a}, {apiVersion: v1, kind: B, name: b, uid: b, controller: true}]}`)
	both := object(t, "batch/v1", "Job", "shop", "j", `metadata: {ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: a}, {apiVersion: v1, kind: B, name: b, uid: b}]}`)
	plain := object(t, "batch/v1", "Job", "shop", "j", "")
	key := func(key string, err error) func(*unstructured.Unstructured) (string, error) {
		return func(*unstructured.Unstructured) (string, error) { return key, err }
	}
	for claim, c := range map[string]struct {
		object  *unstructured.Unstructured
		options candidate.Options
		group   string
		kept    string // part of why
	}{
		"one for all":                   {plain, candidate.Options{}, "", ""},
		"by namespace":                  {plain, candidate.Options{GroupBy: candidate.ByNamespace}, "shop", ""},
		"by the only owner":             {owned, candidate.Options{GroupBy: candidate.ByOwner}, "a", ""},
		"by the controller":             {controlled, candidate.Options{GroupBy: candidate.ByOwner}, "b", ""},
		"with two owners":               {both, candidate.Options{GroupBy: candidate.ByOwner}, "", "no owner to be grouped by"},
		"without an owner":              {plain, candidate.Options{GroupBy: candidate.ByOwner}, "", "no owner to be grouped by"},
		"by a label in its namespace":   {owned, candidate.Options{GroupBy: candidate.ByLabel, Label: "app"}, "shop/web", ""},
		"without the label":             {plain, candidate.Options{GroupBy: candidate.ByLabel, Label: "app"}, "", "no label app"},
		"by a key":                      {plain, candidate.Options{GroupBy: candidate.ByKey, Key: key("k", nil)}, "k", ""},
		"by a key that can't be known":  {plain, candidate.Options{GroupBy: candidate.ByKey, Key: key("", errors.New("no such field"))}, "", "no such field"},
		"by something that is no group": {plain, candidate.Options{GroupBy: "Size"}, "", `grouping "Size"`},
	} {
		c.options.IncludeControlled = true
		got := candidate.Of(c.object, c.options)
		if got.Group != c.group || (c.kept == "") != (got.Protected == "") || !strings.Contains(got.Protected, c.kept) {
			t.Errorf("%s: group %q, protected by %q; want %q and %q", claim, got.Group, got.Protected, c.group, c.kept)
		}
	}
}

func TestP12_WhenObjectsHaveFinished(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	one, two := "2026-05-01T13:00:00Z", "2026-05-01T14:00:00Z"
	for claim, c := range map[string]struct {
		object *unstructured.Unstructured
		is     bool
		at     string // "": not known
	}{
		"a Job that is complete":     {object(t, "batch/v1", "Job", "shop", "j", "status: {conditions: [{type: Suspended, status: 'True', lastTransitionTime: '"+two+"'}, {type: Complete, status: 'True', lastTransitionTime: '"+one+"'}]}"), true, one},
		"a Job that has failed":      {object(t, "batch/v1", "Job", "shop", "j", "status: {conditions: [{type: Failed, status: 'True', lastTransitionTime: '"+one+"'}]}"), true, one},
		"a Job that is running":      {object(t, "batch/v1", "Job", "shop", "j", "status: {conditions: [{type: Complete, status: 'False', lastTransitionTime: '"+one+"'}]}"), false, ""},
		"a new Job":                  {object(t, "batch/v1", "Job", "shop", "j", ""), false, ""},
		"a Job without the time":     {object(t, "batch/v1", "Job", "shop", "j", "status: {conditions: [{type: Failed, status: 'True'}]}"), true, ""},
		"a Pod that has succeeded":   {object(t, "v1", "Pod", "shop", "p", "status: {phase: Succeeded, initContainerStatuses: [{state: {terminated: {finishedAt: '"+one+"'}}}], containerStatuses: [{state: {terminated: {finishedAt: '"+two+"'}}}, {state: {}}]}"), true, two},
		"a Pod that was evicted":     {object(t, "v1", "Pod", "shop", "p", "status: {phase: Failed, reason: Evicted, conditions: [{type: Ready, lastTransitionTime: '"+two+"'}, {type: PodScheduled, lastTransitionTime: '"+one+"'}]}"), true, two},
		"a Pod that has failed":      {object(t, "v1", "Pod", "shop", "p", "status: {phase: Failed}"), true, ""},
		"a Pod that is running":      {object(t, "v1", "Pod", "shop", "p", "status: {phase: Running, containerStatuses: [{state: {terminated: {finishedAt: '"+one+"'}}}]}"), false, ""},
		"a workflow of Argo":         {object(t, "argoproj.io/v1alpha1", "Workflow", "shop", "w", "status: {phase: Failed, finishedAt: '"+one+"'}"), true, one},
		"a workflow that is running": {object(t, "argoproj.io/v1alpha1", "Workflow", "shop", "w", "status: {phase: Running, finishedAt: null}"), false, ""},
		"a run of Tekton":            {object(t, "tekton.dev/v1", "PipelineRun", "shop", "r", "status: {completionTime: '"+one+"'}"), true, one},
		"a kind without an end":      {object(t, "v1", "ConfigMap", "shop", "c", "status: {completionTime: '"+one+"'}"), false, ""},
	} {
		got := candidate.Of(c.object, candidate.Options{})
		var want time.Time
		if c.at != "" {
			want = at(c.at)
		}
		if got.IsFinished != c.is || !got.Finished.Equal(want) || got.Protected != "" {
			t.Errorf("%s: finished %t at %s, protected by %q", claim, got.IsFinished, got.Finished, got.Protected)
		}
		if created := at("2026-05-01T12:00:00Z"); !got.Created.Equal(created) || !got.FirstSeen.Equal(created) || !got.LastUsed.IsZero() {
			t.Errorf("%s: times %+v", claim, got)
		}
	}
	for _, status := range []string{"status: {conditions: text}", "status: {conditions: [text]}", "status: {conditions: [{type: Complete, status: 'True', lastTransitionTime: yesterday}]}"} {
		got := candidate.Of(object(t, "batch/v1", "Job", "shop", "j", status), candidate.Options{})
		if got.IsFinished || !strings.Contains(got.Protected, "it is not known whether it has finished") {
			t.Errorf("%s: %+v", status, got)
		}
	}
	custom := candidate.Options{Finished: func(*unstructured.Unstructured) (bool, time.Time, error) { return true, at(one), nil }}
	if got := candidate.Of(object(t, "example.com/v1", "Build", "shop", "b", ""), custom); !got.IsFinished || !got.Finished.Equal(at(one)) {
		t.Errorf("of a kind of a rule: %+v", got)
	}
	if got := candidate.Of(object(t, "batch/v1", "Job", "shop", "j", ""), custom); got.IsFinished {
		t.Errorf("a rule says when a Job has finished: %+v", got)
	}
}

// The options are what people write; the rest is what objects say.
func TestOf_DoesNotChangeTheObject(t *testing.T) {
	o := object(t, "batch/v1", "Job", "shop", "j", "status: {conditions: [{type: Complete, status: 'True', lastTransitionTime: '2026-05-01T13:00:00Z'}]}")
	before := o.DeepCopy()
	candidate.Of(o, candidate.Options{GroupBy: candidate.ByOwner})
	if diff := cmp.Diff(before.Object, o.Object); diff != "" {
		t.Error(diff)
	}
}

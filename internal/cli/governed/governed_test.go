package governed_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gleaner-dev/gleaner/internal/cli/governed"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

const objects = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ci}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop, labels: {app: web}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ci, labels: {app: web}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, labels: {app: web}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}}
`

func read(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq(text, "---") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

func TestCount_FollowsRulesNamespacesAndSelectors(t *testing.T) {
	s, err := survey.Files(read(t, objects), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s.Unread = append(s.Unread, survey.Unread{Resource: schema.GroupResource{Resource: "secrets"}, Err: errors.New("forbidden")})
	index := governed.NewIndex(s)
	for name, c := range map[string]struct {
		policy string
		want   governed.Count
	}{
		"a resource":            {`{kind: ClusterGCPolicy, spec: {resources: [{apiGroups: [""], resources: [configmaps]}]}}`, governed.Count{Objects: 3}},
		"of another group":      {`{kind: ClusterGCPolicy, spec: {resources: [{apiGroups: [apps], resources: [configmaps]}]}}`, governed.Count{}},
		"two rules, once each":  {`{kind: ClusterGCPolicy, spec: {resources: [{apiGroups: [""], resources: [configmaps]}, {apiGroups: ["", apps], resources: [configmaps, deployments]}]}}`, governed.Count{Objects: 4}},
		"all":                   {`{kind: ClusterGCPolicy, spec: {resources: [{apiGroups: ["*"], resources: ["*"]}]}}`, governed.Count{Objects: 7, AtLeast: true}},
		"its own namespace":     {`{kind: GCPolicy, metadata: {namespace: ci}, spec: {resources: [{apiGroups: [""], resources: [configmaps]}]}}`, governed.Count{Objects: 1}},
		"labels of namespaces":  {`{kind: ClusterGCPolicy, spec: {namespaceSelector: {matchLabels: {team: a}}, resources: [{apiGroups: [""], resources: [configmaps, persistentvolumes]}]}}`, governed.Count{Objects: 2}},
		"absent labels of them": {`{kind: ClusterGCPolicy, spec: {namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}, resources: [{apiGroups: [""], resources: [configmaps, persistentvolumes]}]}}`, governed.Count{Objects: 1}},
		"labels of objects":     {`{kind: ClusterGCPolicy, spec: {objectSelector: {matchLabels: {app: web}}, resources: [{apiGroups: [""], resources: [configmaps]}]}}`, governed.Count{Objects: 2}},
		"conditions":            {`{kind: ClusterGCPolicy, spec: {matchConditions: [{name: a, expression: "true"}], resources: [{apiGroups: [""], resources: [configmaps]}]}}`, governed.Count{Objects: 3, AtMost: true}},
		"what can't be read":    {`{kind: ClusterGCPolicy, spec: {resources: [{apiGroups: [""], resources: [secrets]}]}}`, governed.Count{AtLeast: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, selects, err := index.Count(read(t, c.policy)[0])
			if err != nil || !selects || got != c.want {
				t.Errorf("%+v, %t, %v; want %+v", got, selects, err, c.want)
			}
		})
	}
}

// The labels of a namespace that was not read are not known to be absent.
func TestCount_UnreadNamespaces_MakeItALowerBound(t *testing.T) {
	all := read(t, objects)
	s, err := survey.Files(all[1:], time.Now) // without the namespace shop
	if err != nil {
		t.Fatal(err)
	}
	policy := `{kind: ClusterGCPolicy, spec: {namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}, resources: [{apiGroups: [""], resources: [configmaps]}]}}`
	got, _, err := governed.NewIndex(s).Count(read(t, policy)[0])
	if want := (governed.Count{Objects: 1, AtLeast: true}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestCount_OfWhatSelectsNothing(t *testing.T) {
	s, err := survey.Files(nil, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, selects, err := governed.NewIndex(s).Count(read(t, `{kind: PolicyModule, spec: {rego: {inline: a}}}`)[0]); selects || err != nil {
		t.Error(selects, err)
	}
	broken := `{kind: ClusterGCPolicy, spec: {objectSelector: {matchExpressions: [{key: a, operator: Like}]}, resources: [{apiGroups: [""], resources: [pods]}]}}`
	if _, _, err := governed.NewIndex(s).Count(read(t, broken)[0]); err == nil || !strings.Contains(err.Error(), "read objectSelector: ") {
		t.Error(err)
	}
}

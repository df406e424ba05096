package preview_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/admit"
	"github.com/gleaner-dev/gleaner/crds/resources"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/retainer/preview"
)

var testTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// files is a cluster with the objects of a file.
type files []*unstructured.Unstructured

func read(t *testing.T, name string) (list files) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for part := range bytes.SplitSeq(data, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		text, err := yaml.YAMLToJSON(part)
		if err == nil {
			err = o.UnmarshalJSON(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		o.SetUID(types.UID(o.GetKind() + " " + o.GetName()))
		list = append(list, o)
	}
	return list
}

func plural(kind string) string { return strings.ToLower(kind) + "s" }

func (f files) types() *catalog.Catalog {
	var lists []*metav1.APIResourceList
	seen := map[schema.GroupVersionKind]bool{}
	for _, o := range f {
		gvk := o.GroupVersionKind()
		if seen[gvk] {
			continue
		}
		seen[gvk] = true
		lists = append(lists, &metav1.APIResourceList{GroupVersion: gvk.GroupVersion().String(), APIResources: []metav1.APIResource{{
			Name: plural(gvk.Kind), Kind: gvk.Kind, Namespaced: gvk.Kind != "Namespace", Verbs: metav1.Verbs{"list", "watch", "get", "patch", "delete"},
		}}})
	}
	return catalog.Build(nil, lists, catalog.Settings{})
}

func (f files) List(_ context.Context, resource schema.GroupVersionResource, namespace, _ string, _, _ int) (page bulkread.Page, err error) {
	for _, o := range f {
		if plural(o.GetKind()) == resource.Resource && o.GroupVersionKind().Group == resource.Group && (namespace == "" || o.GetNamespace() == namespace) {
			data, err := json.Marshal(o.Object)
			if err != nil {
				return page, err
			}
			page.Items = append(page.Items, bulkread.Item{Name: o.GetName(), JSON: data})
		}
	}
	return page, nil
}

// policy reads a policy as if it was applied.
func policy(t *testing.T, name string) *policyset.Retention {
	t.Helper()
	o := read(t, name)[0]
	if err := admit.Admit(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var r policyset.Resources
	p := &v1alpha1.RetentionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, p); err != nil {
		t.Fatal(err)
	}
	r.Retentions = []resources.Retention{{Object: p, Kind: o.GetKind(), Meta: p.ObjectMeta, Spec: p.Spec}}
	builder, err := policyset.NewBuilder(policyset.Rules{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	built := builder.Build(r, nil).Retentions[0]
	if !built.Problem.IsZero() {
		t.Fatal(built.Problem.Message)
	}
	return built
}

// Each example does with its objects what their annotation says. What it does not select is kept.
func TestExamples_DoWhatTheirObjectsSay(t *testing.T) {
	folders, err := filepath.Glob("../../../examples/retention/*/policy.yaml")
	if err != nil || len(folders) < 10 {
		t.Fatal(len(folders), err)
	}
	for _, file := range folders {
		folder := filepath.Dir(file)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			objects := read(t, filepath.Join(folder, "objects.yaml"))
			want, got := map[string]string{}, map[string]string{}
			for _, o := range objects {
				want[string(o.GetUID())] = o.GetAnnotations()["expect"]
				got[string(o.GetUID())] = string(preview.Kept)
			}
			report, err := preview.Evaluate(t.Context(), preview.Options{
				Policies: []*policyset.Retention{policy(t, file)}, Lister: objects, Types: objects.types(), Now: testTime,
				Absent: func(context.Context, schema.GroupKind) (bool, error) { return true, nil },
			})
			if err != nil || len(report.Unread) != 0 {
				t.Fatal(report.Unread, err)
			}
			for _, o := range report.Objects {
				got[string(o.UID)] = string(o.Outcome)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["expect"] != "Kept" }) {
				t.Error("nothing of the example is removed")
			}
		})
	}
}

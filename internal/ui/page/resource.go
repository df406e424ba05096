package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/governed"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// groups are the sections of the page Policies, with the kinds in each, and what to do if there is none.
var groups = []struct {
	name, empty string
	kinds       []string
}{
	{"Policies", "Apply a GCPolicy or ClusterGCPolicy to decide what happens to objects that are deleted or lose their owners.", []string{"GCPolicy", "ClusterGCPolicy"}},
	{"Finalizers", "Apply a Finalizer or ClusterFinalizer to have a module clean up before objects are deleted.", []string{"Finalizer", "ClusterFinalizer"}},
	{"Retention", "Apply a RetentionPolicy or ClusterRetentionPolicy to remove objects by age, number or disuse. gleaner preview retention shows what it would remove.", []string{"RetentionPolicy", "ClusterRetentionPolicy", "NodeRetentionPolicy"}},
	{"Archives", "Apply an ArchivePolicy or ClusterArchivePolicy to save objects before they are deleted.", []string{"ArchivePolicy", "ClusterArchivePolicy"}},
	{"Budgets and pauses", "Apply a DeletionBudget or ClusterDeletionBudget to limit deletions; gleaner pause stops them.", []string{"DeletionBudget", "ClusterDeletionBudget", "Pause", "ClusterPause"}},
	{"Modules", "Apply a PolicyModule or ClusterPolicyModule to give policies and finalizers a module.", []string{"PolicyModule", "ClusterPolicyModule"}},
}

// GroupResources returns Gleaner's resources in the sections of the page Policies. The counts are those of the objects that they select,
// by UID; one that is missing is not shown.
func GroupResources(objects []*unstructured.Unstructured, counts map[types.UID]governed.Count) []PolicyGroup {
	var all []PolicyGroup
	for _, g := range groups {
		section := PolicyGroup{Name: g.name, Empty: g.empty}
		for _, o := range objects {
			if slices.Contains(g.kinds, o.GetKind()) {
				r := resourceOf(o)
				if n, is := counts[o.GetUID()]; is {
					r.Objects = countOf(n)
				}
				section.Resources = append(section.Resources, r)
			}
		}
		all = append(all, section)
	}
	return all
}

func resourceOf(o *unstructured.Unstructured) Resource {
	r := Resource{
		Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Created: o.GetCreationTimestamp().Time, Deleting: o.GetDeletionTimestamp() != nil,
	}
	r.Mode, _, _ = unstructured.NestedString(o.Object, "spec", "mode")
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "resources")
	for _, rule := range rules {
		r.Governs = append(r.Governs, governs(rule))
	}
	status, _, _ := unstructured.NestedMap(o.Object, "status")
	r.Conditions = conditionsOf(status)
	r.Next = nextOf(status)
	for name, value := range status {
		if text, ok := scalar(value); ok && name != "observedGeneration" {
			r.Facts = append(r.Facts, Fact{words(name), text})
		}
	}
	slices.SortFunc(r.Facts, func(a, b Fact) int { return cmp.Compare(a.Name, b.Name) })
	return r
}

// countOf says how many objects a resource selects.
func countOf(n governed.Count) string {
	text := printer.Count(n.Objects, "object", "objects")
	switch {
	case n.AtLeast && n.AtMost:
		return text + " that could be read, before its conditions"
	case n.AtLeast:
		return "at least " + text
	case n.AtMost:
		return "at most " + text + ", before its conditions"
	default:
		return text
	}
}

// governs returns what a rule selects, such as deployments.apps.
func governs(rule any) string {
	fields, ok := rule.(map[string]any)
	if !ok {
		return ""
	}
	groups, _, _ := unstructured.NestedStringSlice(fields, "apiGroups")
	resources, _, _ := unstructured.NestedStringSlice(fields, "resources")
	text := strings.Join(resources, ", ")
	if in := strings.Join(groups, ", "); in != "" {
		text += " in " + in
	}
	return text
}

func conditionsOf(status map[string]any) (all []metav1.Condition) {
	list, _, _ := unstructured.NestedSlice(status, "conditions")
	for _, item := range list {
		var c metav1.Condition
		if fields, ok := item.(map[string]any); ok && runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c) == nil {
			all = append(all, c)
		}
	}
	return all
}

// nextOf returns what a retention policy removes next.
func nextOf(status map[string]any) (lines []string) {
	list, _, _ := unstructured.NestedSlice(status, "nextRemovals")
	for _, item := range list {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		text := func(name string) string { value, _ := scalar(fields[name]); return value }
		line := text("name")
		if namespace := text("namespace"); namespace != "" {
			line = namespace + "/" + line
		}
		if at := text("time"); at != "" {
			line += " at " + at
		}
		if reason := text("reason"); reason != "" {
			line += " (" + reason + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

func scalar(value any) (string, bool) {
	switch value := value.(type) {
	case string:
		return value, value != ""
	case int64, float64, bool:
		return fmt.Sprint(value), true
	default:
		return "", false
	}
}

// words returns the name of a field as words: lastFailure becomes "last failure".
func words(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

package candidate

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// finishers return whether an object of a kind has finished, and when; zero if its status does not say when.
var finishers = map[schema.GroupKind]func(*unstructured.Unstructured) (bool, time.Time, error){
	{Kind: "Pod"}:                              finishedPod,
	{Group: "batch", Kind: "Job"}:              finishedJob,
	{Group: "argoproj.io", Kind: "Workflow"}:   finishedAt("finishedAt"),
	{Group: "tekton.dev", Kind: "PipelineRun"}: finishedAt("completionTime"),
	{Group: "tekton.dev", Kind: "TaskRun"}:     finishedAt("completionTime"),
	{Group: "tekton.dev", Kind: "CustomRun"}:   finishedAt("completionTime"),
	{Group: "velero.io", Kind: "Backup"}:       finishedAt("completionTimestamp"),
	{Group: "velero.io", Kind: "Restore"}:      finishedAt("completionTimestamp"),
}

func finished(o *unstructured.Unstructured, options Options) (bool, time.Time, error) {
	if f, ok := finishers[o.GroupVersionKind().GroupKind()]; ok {
		return f(o)
	}
	if options.Finished != nil {
		return options.Finished(o)
	}
	return false, time.Time{}, nil
}

// finishedAt returns the function for kinds that set a completion time in their status when they finish.
func finishedAt(field string) func(*unstructured.Unstructured) (bool, time.Time, error) {
	return func(o *unstructured.Unstructured) (bool, time.Time, error) {
		at, err := timeOf(o.Object, "status", field)
		return !at.IsZero(), at, err
	}
}

// timeOf returns the time in a field; zero if there is none.
func timeOf(in map[string]any, path ...string) (time.Time, error) {
	value, _, err := unstructured.NestedFieldNoCopy(in, path...)
	if err != nil || value == nil {
		return time.Time{}, err
	}
	text, ok := value.(string)
	if !ok {
		return time.Time{}, fmt.Errorf("%s is no time", strings.Join(path, "."))
	}
	return time.Parse(time.RFC3339, text)
}

// listOf returns the elements of a list in the status.
func listOf(o *unstructured.Unstructured, name string) ([]map[string]any, error) {
	value, _, err := unstructured.NestedFieldNoCopy(o.Object, "status", name)
	if err != nil || value == nil {
		return nil, err
	}
	items, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("status.%s is no list", name)
	}
	list := make([]map[string]any, len(items))
	for i, item := range items {
		if list[i], ok = item.(map[string]any); !ok {
			return nil, fmt.Errorf("status.%s has an element that is no object", name)
		}
	}
	return list, nil
}

// finishedJob returns when a Job got the condition Complete or Failed, as its controller does it (P-12).
func finishedJob(o *unstructured.Unstructured) (bool, time.Time, error) {
	conditions, err := listOf(o, "conditions")
	if err != nil {
		return false, time.Time{}, err
	}
	for _, c := range conditions {
		if (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True" {
			at, err := timeOf(c, "lastTransitionTime")
			return true, at, err
		}
	}
	return false, time.Time{}, nil
}

// finishedPod returns when the last container of a Pod ended, that is in phase Succeeded or Failed. One that was evicted, or never
// started, has none that did: then it is when it ceased to be ready.
func finishedPod(o *unstructured.Unstructured) (bool, time.Time, error) {
	phase, _, err := unstructured.NestedString(o.Object, "status", "phase")
	if err != nil || phase != "Succeeded" && phase != "Failed" {
		return false, time.Time{}, err
	}
	var last time.Time
	for _, field := range []string{"initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"} {
		at, err := latestIn(o, field, "state", "terminated", "finishedAt")
		if err != nil {
			return false, time.Time{}, err
		}
		if at.After(last) {
			last = at
		}
	}
	if last.IsZero() {
		last, err = latestIn(o, "conditions", "lastTransitionTime")
	}
	return err == nil, last, err
}

// latestIn returns the latest of the times in the elements of a list in the status.
func latestIn(o *unstructured.Unstructured, list string, path ...string) (last time.Time, err error) {
	items, err := listOf(o, list)
	if err != nil {
		return last, err
	}
	for _, fields := range items {
		at, err := timeOf(fields, path...)
		if err != nil {
			return last, err
		}
		if at.After(last) {
			last = at
		}
	}
	return last, nil
}

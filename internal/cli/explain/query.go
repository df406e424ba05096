package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// Query names the object to explain.
type Query struct {
	Config  *rest.Config
	Gleaner client.Reader // of Gleaner's resources

	// Records reads records, of the operator or of an archive.
	Records func(context.Context, replicas.Selection) (replicas.Records, error)

	Kind      schema.GroupVersionKind
	Resource  schema.GroupResource
	Namespace string
	Name      string
	UID       types.UID                  // of a deleted object; "": any object with the name
	Object    *unstructured.Unstructured // nil: not found

	// Progress is called with the current step; may be nil.
	Progress func(doing string)
}

// Explain reads the data about an object, and explains it. The explanation lists what could not be
// read; an error means that nothing could be.
func Explain(ctx context.Context, q Query) (Explanation, error) {
	f := Data{Name: q.name()}
	if o := q.Object; o != nil && (q.UID == "" || o.GetUID() == q.UID) {
		f.Object = finalizers.Object{Object: o, Kind: q.Kind, Resource: q.Resource}
		f.Name.UID, f.Name.ResourceVersion = o.GetUID(), o.GetResourceVersion()
		f.Conditions = conditions(q.Kind, o)
	} else if o != nil {
		f.Unknown = append(f.Unknown, fmt.Sprintf("another object now has the name, with UID %s", o.GetUID()))
	}
	q.progress("Reading Gleaner's resources")
	f.Resources = finalizers.Read(ctx, q.Gleaner)
	if f.Object.Object != nil {
		q.progress("Reading owners and dependents")
		if err := q.facts(ctx, &f); err != nil {
			f.Unknown = append(f.Unknown, err.Error())
		}
	}
	q.progress("Reading the operator's records")
	if err := q.records(ctx, &f); err != nil {
		f.Unknown = append(f.Unknown, err.Error())
	}
	if err := q.removals(ctx, &f); err != nil {
		f.Unknown = append(f.Unknown, err.Error())
	}
	q.progress("Reading events")
	var err error
	if f.Events, err = q.events(ctx, f.Name.UID); err != nil {
		f.Unknown = append(f.Unknown, err.Error())
	}
	return FromData(f), ctx.Err()
}

// conditions returns the messages of a namespace's conditions, which list its remaining
// content.
func conditions(kind schema.GroupVersionKind, o *unstructured.Unstructured) []string {
	var n corev1.Namespace
	if kind.Group != "" || kind.Kind != "Namespace" || runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &n) != nil {
		return nil
	}
	var list []string
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			list = append(list, strings.TrimSuffix(c.Message, "."))
		}
	}
	return list
}

func (q Query) progress(doing string) {
	if q.Progress != nil {
		q.Progress(doing)
	}
}

func (q Query) name() record.Object {
	apiVersion, kind := q.Kind.ToAPIVersionAndKind()
	return record.Object{APIVersion: apiVersion, Kind: kind, Namespace: q.Namespace, Name: q.Name, UID: q.UID}
}

// facts reads the standing of the object's owners, and its dependents. For a namespaced object,
// these are in its namespace, or are read as owners.
func (q Query) facts(ctx context.Context, f *Data) error {
	s, err := survey.Live(ctx, survey.Options{Config: q.Config, Namespace: q.Namespace, Now: time.Now, Progress: func(done, of int) {
		q.progress(fmt.Sprintf("Reading owners and dependents: %d of %d types", done, of))
	}})
	if err != nil {
		return fmt.Errorf("read owners and dependents: %w", err)
	}
	for _, line := range survey.Lines(s.Unread) {
		f.Unknown = append(f.Unknown, "objects of "+line)
	}
	f.Facts, f.FactsKnown = s.Facts(ctx, graph.IDOf(f.Object.GetUID()))
	return nil
}

func (q Query) records(ctx context.Context, f *Data) error {
	about := record.ObjectQuery{UID: f.Name.UID}
	if about.UID == "" {
		about = record.ObjectQuery{Group: &q.Kind.Group, Kind: q.Kind.Kind, Namespace: &q.Namespace, Name: q.Name}
	}
	var err error
	f.Records, err = q.Records(ctx, replicas.Selection{Query: record.Query{Object: about}})
	f.OperatorFound = len(f.Records.Queried)+len(f.Records.Unreachable) != 0
	return err
}

// removals reads what retention removed from the object, if that is a Node.
func (q Query) removals(ctx context.Context, f *Data) error {
	if q.Kind.GroupKind() != (schema.GroupKind{Kind: "Node"}) {
		return nil
	}
	var n v1alpha1.NodeRetention
	err := q.Gleaner.Get(ctx, client.ObjectKey{Name: q.Name}, &n)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err): // nothing removes anything from the node
		return nil
	case err != nil:
		return fmt.Errorf("read what was removed from the node: %w", err)
	}
	f.Removals = n.Status.RecentRemovals
	return nil
}

// events reads the events about the object.
func (q Query) events(ctx context.Context, uid types.UID) ([]Event, error) {
	kube, err := kubernetes.NewForConfig(q.Config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	by := fields.Set{"involvedObject.kind": q.Kind.Kind, "involvedObject.name": q.Name}
	if uid != "" {
		by["involvedObject.uid"] = string(uid)
	}
	namespace := q.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // events about cluster-scoped objects are there
	}
	list, err := kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: by.String()})
	if err != nil {
		return nil, fmt.Errorf("list events in namespace %s: %w", namespace, err)
	}
	var found []Event
	for _, e := range list.Items {
		found = append(found, eventOf(e))
	}
	slices.SortStableFunc(found, func(a, b Event) int { return a.Time.Compare(b.Time.Time) })
	return found, nil
}

// eventOf converts an event of either the old or the new style.
func eventOf(e corev1.Event) Event {
	found := Event{Time: e.LastTimestamp, Type: e.Type, Reason: e.Reason, Message: e.Message, From: e.Source.Component, Count: e.Count}
	if found.Time.IsZero() {
		found.Time = metav1.NewTime(e.EventTime.Time)
	}
	if e.Series != nil {
		found.Time, found.Count = metav1.NewTime(e.Series.LastObservedTime.Time), e.Series.Count
	}
	if found.Time.IsZero() {
		found.Time = e.CreationTimestamp
	}
	if found.From == "" {
		found.From = e.ReportingController
	}
	return found
}

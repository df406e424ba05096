package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// Question is what is asked about.
type Question struct {
	Config   *rest.Config
	Operator replicas.Where
	Gleaner  client.Reader // of Gleaner's resources

	Kind      schema.GroupVersionKind
	Resource  schema.GroupResource
	Namespace string
	Name      string
	UID       types.UID                  // of one that is gone; "": of whatever has the name
	Object    *unstructured.Unstructured // nil: there is none by the name

	// Told is told what is being done; may be nil.
	Told func(doing string)
}

// Ask finds out about an object, and explains it. What could not be found out is
// in the answer; an error means that nothing was.
func Ask(ctx context.Context, q Question) (Explanation, error) {
	f := Found{Name: q.name()}
	if o := q.Object; o != nil && (q.UID == "" || o.GetUID() == q.UID) {
		f.Object = whose.Object{Object: o, Kind: q.Kind, Resource: q.Resource}
		f.Name.UID, f.Name.ResourceVersion = o.GetUID(), o.GetResourceVersion()
		f.Conditions = conditions(q.Kind, o)
	} else if o != nil {
		f.Unknown = append(f.Unknown, fmt.Sprintf("there is another object by the name now, with the UID %s", o.GetUID()))
	}
	q.tell("reading Gleaner's resources")
	f.Book = whose.Read(ctx, q.Gleaner)
	if f.Object.Object != nil {
		q.tell("reading owners and dependents")
		if err := q.facts(ctx, &f); err != nil {
			f.Unknown = append(f.Unknown, err.Error())
		}
	}
	q.tell("asking the operator for its records")
	if err := q.records(ctx, &f); err != nil {
		f.Unknown = append(f.Unknown, err.Error())
	}
	q.tell("reading events")
	var err error
	if f.Events, err = q.events(ctx, f.Name.UID); err != nil {
		f.Unknown = append(f.Unknown, err.Error())
	}
	return Of(f), ctx.Err()
}

// conditions are the messages of a namespace's conditions, which say what is left in
// it.
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

func (q Question) tell(doing string) {
	if q.Told != nil {
		q.Told(doing)
	}
}

func (q Question) name() record.Object {
	apiVersion, kind := q.Kind.ToAPIVersionAndKind()
	return record.Object{APIVersion: apiVersion, Kind: kind, Namespace: q.Namespace, Name: q.Name, UID: q.UID}
}

// facts finds out how the object's owners stand, and what depends on it. Of one in
// a namespace that is all in there, or is read as an owner.
func (q Question) facts(ctx context.Context, f *Found) error {
	s, err := survey.Live(ctx, survey.Options{Config: q.Config, Namespace: q.Namespace, Now: time.Now, Listed: func(done, of int) {
		q.tell(fmt.Sprintf("reading owners and dependents: %d of %d types", done, of))
	}})
	if err != nil {
		return fmt.Errorf("read owners and dependents: %w", err)
	}
	for _, line := range survey.Lines(s.Unread) {
		f.Unknown = append(f.Unknown, "objects of "+line)
	}
	f.Facts, f.Known = s.Facts(ctx, graph.IDOf(f.Object.GetUID()))
	return nil
}

func (q Question) records(ctx context.Context, f *Found) error {
	all, err := replicas.Find(ctx, q.Operator)
	if err != nil {
		return err
	}
	defer replicas.Close(all)
	f.Running = len(all) != 0
	about := replicas.About{UID: f.Name.UID}
	if about.UID == "" {
		about = replicas.About{Group: q.Kind.Group, Kind: q.Kind.Kind, Namespace: q.Namespace, Name: q.Name}
	}
	f.Records = replicas.RecordsOf(ctx, all, about)
	return nil
}

// events reads the events about the object.
func (q Question) events(ctx context.Context, uid types.UID) ([]Event, error) {
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
		namespace = metav1.NamespaceDefault // where those about objects without one are
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

// eventOf reads an event, which API servers keep in either of two styles.
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

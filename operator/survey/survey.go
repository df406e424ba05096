// Package survey reads the types, objects and owner references of a cluster once. It
// reads only metadata. Objects can also come from files.
//
// It watches nothing, decides nothing and writes nothing. Types that could not be read are
// listed in Unread. An owner that could not be read is Unknown, not Absent.
package survey

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Survey contains the types and objects that were read. Its methods must not be called
// concurrently.
type Survey struct {
	Types *catalog.Catalog
	Graph *graph.Graph
	Items map[graph.ID]Item

	// EquivalentResources are the other resources under which an object is also served.
	EquivalentResources map[graph.ID][]catalog.Resource

	// Unread are the types whose objects could not be read, at least partially.
	Unread []Unread

	// FromFiles is set if the objects come from files, without a cluster.
	FromFiles bool

	// Serves, Absent, Empty and Client read more from the cluster; without one, they
	// return errors.
	Serves      gather.Serves
	Absent      func(context.Context, schema.GroupKind) (bool, error)
	VerifyEmpty func(context.Context, schema.GroupVersion) error
	Client      metadata.Interface

	// ImpliedNamespace is a namespace that has objects in the files, but is not in the files
	// itself. Only its existence is known.
	ImpliedNamespace string

	// Mapper maps resource names to the types of files; nil for a cluster.
	Mapper meta.RESTMapper

	gatherer *gather.Gatherer
}

// Item is an object. Of its annotations only Gleaner's are kept.
type Item struct {
	Resource catalog.Resource
	Meta     *metav1.PartialObjectMetadata

	// Object is the complete object, if it is from a file.
	Object *unstructured.Unstructured
}

// Unread is a type whose objects could not be read, or only those of one namespace.
type Unread struct {
	Resource      schema.GroupResource
	OnlyNamespace string // the namespace whose objects could be read
	Err           error
}

// String returns the type and the error in one line.
func (u Unread) String() string {
	if u.OnlyNamespace != "" {
		return u.Resource.String() + " outside of namespace " + u.OnlyNamespace + ": " + u.Err.Error()
	}
	return u.Resource.String() + ": " + u.Err.Error()
}

// minFolded is the number of forbidden types from which they share one line. Fewer have a
// line each, with the error.
const minFolded = 4

// Lines returns one line for each unread type with its error. Many forbidden types share
// one line, since they have the same cause.
func Lines(unread []Unread) []string {
	forbidden := map[string][]string{}
	for _, u := range unread {
		if apierrors.IsForbidden(u.Err) {
			forbidden[u.OnlyNamespace] = append(forbidden[u.OnlyNamespace], u.Resource.String())
		}
	}
	var lines []string
	for _, u := range unread {
		types := forbidden[u.OnlyNamespace]
		switch {
		case !apierrors.IsForbidden(u.Err) || len(types) < minFolded:
			lines = append(lines, u.String())
		case u.Resource.String() == types[0]:
			where := ""
			if u.OnlyNamespace != "" {
				where = " outside of namespace " + u.OnlyNamespace
			}
			lines = append(lines, fmt.Sprintf("%d types that you are not allowed to list%s: %s", len(types), where, strings.Join(types, ", ")))
		}
	}
	return lines
}

// initGatherer sets up the gatherer of facts.
func (s *Survey) initGatherer(now func() time.Time) {
	types := func() *catalog.Catalog { return s.Types }
	observe := func(events ...graph.Event) {
		for _, e := range events {
			s.Graph.Apply(e, nil)
		}
	}
	sources := gather.Sources{Catalog: types, Absent: s.Absent, VerifyEmpty: s.VerifyEmpty}
	s.gatherer = &gather.Gatherer{
		Graph: s.Graph, Catalog: types, Reader: gather.NewReader(s.Client, s.Serves, now), Observe: observe, Now: now,
		Barrier: gather.NewBarrier(s.Graph, sources, s.Client, observe, now),
	}
}

// Facts returns the facts about an object and its owners. Owners that are not in the
// survey are read now.
func (s *Survey) Facts(ctx context.Context, id graph.ID) (decide.Facts, bool) {
	return s.gatherer.Gather(ctx, id)
}

// Object converts an item to an object of the graph.
func (s *Survey) Object(i Item) graph.Object {
	return graph.ObjectOf(i.Resource.GroupVersionKind(), i.Meta)
}

// add adds the objects of one type.
func (s *Survey) add(r catalog.Resource, items []Item) {
	relisted := graph.Relisted{Kind: r.GroupKind(), Listed: map[graph.ID]struct{}{}}
	for _, item := range items {
		o := s.Object(item)
		id := graph.IDOf(o.UID)
		relisted.Listed[id] = struct{}{}
		if _, known := s.Items[id]; known {
			s.EquivalentResources[id] = append(s.EquivalentResources[id], r)
		} else {
			s.Items[id] = item
		}
		s.Graph.Apply(graph.Seen{Object: o}, nil)
	}
	s.Graph.Apply(relisted, nil)
}

// Catalog returns the types.
func (s *Survey) Catalog() *catalog.Catalog { return s.Types }

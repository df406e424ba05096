// Package survey reads a cluster once, for one question: which types there are,
// what objects, and who owns whom. It reads metadata alone, and can do the same
// with objects from files.
//
// It watches nothing, decides nothing and writes nothing. A type that could not be
// read is named in Unread, and what is not known of an owner is Unknown: unread is
// not absent.
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

// Survey is what was found. Its methods may not be called concurrently.
type Survey struct {
	Types *catalog.Catalog
	Graph *graph.Graph
	Items map[graph.ID]Item

	// Twins are the other types that an object is shown under, too.
	Twins map[graph.ID][]catalog.Resource

	// Unread are the types whose objects are not known, or not all of them.
	Unread []Unread

	// Files says that all is from files: there is no cluster to ask for more.
	Files bool

	// Served, Absent, Empty and Client ask the cluster for more; of files they answer that
	// nothing more is known.
	Served gather.Serves
	Absent func(context.Context, schema.GroupKind) (bool, error)
	Empty  func(context.Context, schema.GroupVersion) error
	Client metadata.Interface

	// Implied is a namespace that no file has, but objects in it: that it is there is
	// all that is known of it.
	Implied string

	// Mapper knows the types of files by the names that people use; nil of a cluster.
	Mapper meta.RESTMapper

	gatherer *gather.Gatherer
}

// Item is an object. Of its annotations only Gleaner's are kept.
type Item struct {
	Resource catalog.Resource
	Meta     *metav1.PartialObjectMetadata

	// Whole is the object itself, where it is from a file.
	Whole *unstructured.Unstructured
}

// Unread is a type whose objects are not known, or only those of one namespace.
type Unread struct {
	Resource schema.GroupResource
	Only     string // the namespace whose objects are known after all
	Err      error
}

// String says so in a line.
func (u Unread) String() string {
	if u.Only != "" {
		return u.Resource.String() + " outside of namespace " + u.Only + ": " + u.Err.Error()
	}
	return u.Resource.String() + ": " + u.Err.Error()
}

// foldFrom is how many types that may not be listed are told in one line: with fewer
// each is told with its error.
const foldFrom = 4

// Lines say of what is not known why, a type a line. Types that the reader has no right
// to list have one line together if they are many: they are for one reason.
func Lines(unread []Unread) []string {
	forbidden := map[string][]string{}
	for _, u := range unread {
		if apierrors.IsForbidden(u.Err) {
			forbidden[u.Only] = append(forbidden[u.Only], u.Resource.String())
		}
	}
	var lines []string
	for _, u := range unread {
		types := forbidden[u.Only]
		switch {
		case !apierrors.IsForbidden(u.Err) || len(types) < foldFrom:
			lines = append(lines, u.String())
		case u.Resource.String() == types[0]:
			where := ""
			if u.Only != "" {
				where = " outside of namespace " + u.Only
			}
			lines = append(lines, fmt.Sprintf("%d types that you may not list%s: %s", len(types), where, strings.Join(types, ", ")))
		}
	}
	return lines
}

// wire makes what gathers facts.
func (s *Survey) wire(now func() time.Time) {
	types := func() *catalog.Catalog { return s.Types }
	observe := func(events ...graph.Event) {
		for _, e := range events {
			s.Graph.Apply(e, nil)
		}
	}
	sources := gather.Sources{Catalog: types, Absent: s.Absent, Empty: s.Empty}
	s.gatherer = &gather.Gatherer{
		Graph: s.Graph, Catalog: types, Reader: gather.NewReader(s.Client, s.Served, now), Observe: observe, Now: now,
		Barrier: gather.NewBarrier(s.Graph, sources, s.Client, observe, now),
	}
}

// Facts returns what is known of an object and its owners. Owners that were not
// among what was read are read now.
func (s *Survey) Facts(ctx context.Context, id graph.ID) (decide.Facts, bool) {
	return s.gatherer.Gather(ctx, id)
}

// Object returns what the graph has of an object that was read.
func (s *Survey) Object(i Item) graph.Object {
	return graph.ObjectOf(i.Resource.GroupVersionKind(), i.Meta)
}

// add takes in objects of one type.
func (s *Survey) add(r catalog.Resource, items []Item) {
	relisted := graph.Relisted{Kind: r.GroupKind(), Listed: map[graph.ID]struct{}{}}
	for _, item := range items {
		o := s.Object(item)
		id := graph.IDOf(o.UID)
		relisted.Listed[id] = struct{}{}
		if _, twin := s.Items[id]; twin {
			s.Twins[id] = append(s.Twins[id], r)
		} else {
			s.Items[id] = item
		}
		s.Graph.Apply(graph.Seen{Object: o}, nil)
	}
	s.Graph.Apply(relisted, nil)
}

// Catalog returns the types.
func (s *Survey) Catalog() *catalog.Catalog { return s.Types }

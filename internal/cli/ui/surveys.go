package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/governed"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/preview"
	"github.com/gleaner-dev/gleaner/internal/ui/page"
	"github.com/gleaner-dev/gleaner/operator/graph"
	operatorpreview "github.com/gleaner-dev/gleaner/operator/preview"
)

const (
	surveyFor  = 15 * time.Second // for which what was read is shown again, while a person selects
	maxSurveys = 4
)

// surveys has what was read last, of a few namespaces.
type surveys struct {
	read func(ctx context.Context, namespace string) (*input.Input, error)

	mu    sync.Mutex // covers what follows
	known map[string]*reading
}

// reading is what was read of a namespace at a time.
type reading struct {
	mu    sync.Mutex // covers what follows; a survey is not for concurrent use
	at    time.Time  // zero: not read
	input *input.Input
	parts map[string]*ownership.Ownership // by target
}

func newSurveys(read func(context.Context, string) (*input.Input, error)) *surveys {
	return &surveys{read: read, known: map[string]*reading{}}
}

// of returns the reading of a namespace, which may have to be read.
func (s *surveys) of(namespace string) *reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.known[namespace]
	if r == nil {
		if len(s.known) >= maxSurveys {
			clear(s.known)
		}
		r = &reading{}
		s.known[namespace] = r
	}
	return r
}

// graph implements server.Sources.Graph.
func (s *surveys) graph(ctx context.Context, namespace, target string) (*ownership.Ownership, time.Time, error) {
	r := s.of(namespace)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refresh(ctx, s.read, namespace); err != nil {
		return nil, time.Time{}, err
	}
	if known := r.parts[target]; known != nil {
		return known, r.at, nil
	}
	o, err := partOf(ctx, r.input, namespace, target)
	if err == nil && len(r.parts) < maxSurveys {
		r.parts[target] = o
	}
	return o, r.at, err
}

// refresh reads again what is too old. The caller holds the lock.
func (r *reading) refresh(ctx context.Context, read func(context.Context, string) (*input.Input, error), namespace string) error {
	if r.input != nil && time.Since(r.at) <= surveyFor {
		return nil
	}
	a, err := read(ctx, namespace)
	if err != nil {
		return err
	}
	r.input, r.at, r.parts = a, time.Now(), map[string]*ownership.Ownership{}
	return nil
}

// governed implements server.Sources.Governed.
func (s *surveys) governed(ctx context.Context, resources []*unstructured.Unstructured) (map[types.UID]governed.Count, error) {
	r := s.of("")
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refresh(ctx, s.read, ""); err != nil {
		return nil, err
	}
	index, counts := governed.NewIndex(r.input.Survey), map[types.UID]governed.Count{}
	for _, o := range resources {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if n, selects, err := index.Count(o); err == nil && selects { // a spec that can't be read has a condition that says so
			counts[o.GetUID()] = n
		}
	}
	return counts, nil
}

// partOf returns the owners and dependents of a target, or all in a namespace.
func partOf(ctx context.Context, a *input.Input, namespace, target string) (*ownership.Ownership, error) {
	s := a.Survey
	if target == "" {
		return ownership.Of(ctx, s, ownership.DumpOf(s, namespace), ""), nil
	}
	kind, name, err := kubectl.ParseTarget([]string{target})
	if err != nil {
		return nil, err
	}
	var found []types.UID
	for _, item := range s.Items {
		if item.Meta.Name == name && isKind(kind, item.Resource.Kind, item.Resource.Version.Resource) && (namespace == "" || item.Meta.Namespace == namespace || item.Meta.Namespace == "") {
			found = append(found, item.Meta.UID)
		}
	}
	switch len(found) {
	case 1:
		return ownership.Of(ctx, s, s.Graph.Dump(found[0]), found[0]), nil
	case 0:
		return nil, fmt.Errorf("%s was not found: write Kind/name, such as Deployment/web, and select its namespace", target)
	default:
		return nil, fmt.Errorf("%s exists in %d namespaces: select one", target, len(found))
	}
}

// isKind reports whether a word names a kind, or its resource.
func isKind(word, kind, resource string) bool {
	word, _, _ = strings.Cut(word, ".")
	return strings.EqualFold(word, kind) || strings.EqualFold(word, resource)
}

var propagationPolicies = map[string]metav1.DeletionPropagation{
	"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground, "orphan": metav1.DeletePropagationOrphan,
}

// previewOf simulates a deletion in what was just read.
func previewOf(ctx context.Context, a *input.Input, uid types.UID, cascade string) (*page.Preview, error) {
	if cascade == "" {
		cascade = "background"
	}
	policy, known := propagationPolicies[cascade]
	if !known {
		return nil, fmt.Errorf("unknown propagation policy %q: use background, foreground or orphan", cascade)
	}
	if _, exists := a.Survey.Items[graph.IDOf(uid)]; !exists {
		return nil, errors.New("the object no longer exists, or is in another namespace")
	}
	r, err := preview.Of(ctx, a, []graph.ID{graph.IDOf(uid)}, policy, io.Discard)
	if err != nil {
		return nil, err
	}
	p := &page.Preview{Target: r.Preview.Objects[0].Object, Cascade: cascade, Notes: r.Preview.Notes, Unread: r.Unread, Outcomes: map[types.UID]page.Outcome{}}
	for _, o := range r.Preview.Objects {
		p.Add(o.UID, outcomeOf(o))
	}
	return p, nil
}

// outcomeOf returns what a preview says about an object, for people.
func outcomeOf(o operatorpreview.Object) page.Outcome {
	why := o.Reason
	if o.Message != "" {
		why += ": " + o.Message
	}
	if o.Policy != "" {
		why += " (" + o.Policy + ")"
	}
	switch o.Outcome {
	case operatorpreview.Goes:
		return page.Outcome{Class: page.Deleted, Text: "deleted", Why: why}
	case operatorpreview.Waits:
		text := "waits"
		if o.Then != operatorpreview.Unknown {
			text += ", then " + map[operatorpreview.Outcome]string{operatorpreview.Goes: "deleted", operatorpreview.Stays: "stays"}[o.Then]
		}
		return page.Outcome{Class: page.Waits, Text: text, Why: why}
	case operatorpreview.Stays:
		return page.Outcome{Class: page.Stays, Text: "stays", Why: why}
	default:
		return page.Outcome{Class: page.Unknown, Text: "unknown", Why: why}
	}
}

// filePreview returns server.Sources.Preview for files.
func filePreview(read func(context.Context, string) (*input.Input, error)) func(context.Context, string, types.UID, string) (*page.Preview, error) {
	return func(ctx context.Context, namespace string, uid types.UID, cascade string) (*page.Preview, error) {
		a, err := read(ctx, namespace)
		if err != nil {
			return nil, err
		}
		return previewOf(ctx, a, uid, cascade)
	}
}

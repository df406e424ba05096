package stuck

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

const maxConcurrentReads = 8

// Options configures the search.
type Options struct {
	Config     *rest.Config
	Gleaner    client.Reader // of Gleaner's resources
	Namespace  string        // none: all, and cluster-scoped objects
	LongerThan time.Duration
	Progress   func(doing string) // is called with the current step; may be nil
}

// Find searches a cluster for stuck objects.
func Find(ctx context.Context, q Options) (Report, error) {
	r := Report{LongerThan: metav1.Duration{Duration: q.LongerThan}, Namespace: q.Namespace, At: metav1.Now()}
	book := finalizers.Read(ctx, q.Gleaner)
	s, err := survey.Live(ctx, survey.Options{Config: q.Config, Namespace: q.Namespace, Now: time.Now, Progress: func(done, of int) {
		q.progress(fmt.Sprintf("Searching the cluster: %d of %d types", done, of))
	}})
	if err != nil {
		return r, err
	}
	r.Unknown = append(slices.Clone(book.Unread), survey.Lines(s.Unread)...)
	r.Paused = book.Paused(q.Namespace, r.At.Time)
	f := &finder{Options: q, survey: s, at: r.At.Time, reported: book.StuckObjects()}
	if f.kube, err = kubernetes.NewForConfig(q.Config); err != nil {
		return r, fmt.Errorf("make client: %w", err)
	}
	if err := f.find(ctx); err != nil {
		return r, err
	}
	r.Unknown = append(r.Unknown, f.unread...)
	r.TooManyOwners = tooManyOwners(s, r.At.Time, q.LongerThan)
	r.Objects, r.Groups = len(f.found), GroupByFinalizer(f.found, book)
	for _, found := range f.found {
		if !longerThan(found.GetDeletionTimestamp(), q.LongerThan, r.At.Time) {
			r.ReportedStuck++
		}
	}
	return r, nil
}

func (q Options) progress(doing string) {
	if q.Progress != nil {
		q.Progress(doing)
	}
}

type finder struct {
	Options
	survey   *survey.Survey
	kube     kubernetes.Interface
	at       time.Time
	reported map[types.UID]bool // reported as stuck by finalizers, regardless of the time

	mu     sync.Mutex // covers what follows
	found  []Item
	unread []string
}

// find reads each stuck object again, with its managed fields.
func (f *finder) find(ctx context.Context) error {
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(maxConcurrentReads)
	for id, item := range f.survey.Items {
		if at := item.Meta.DeletionTimestamp; at == nil || !longerThan(at, f.LongerThan, f.at) && !f.reported[item.Meta.UID] {
			continue
		}
		facts, ok := f.survey.Facts(ctx, id) // not safe for concurrent use
		found := Item{Resource: item.Resource.Version.GroupResource().String()}
		if ok && facts.Object.Terminating && (facts.Object.Foreground || facts.Object.Orphan) {
			found.WaitsFor, found.Blocking = record.BlockersOf(facts), facts.Blocking
		}
		reads.Go(func() error { return f.read(ctx, item, found) })
	}
	return reads.Wait()
}

func (f *finder) read(ctx context.Context, item survey.Item, found Item) error {
	o, gvk := item.Meta, item.Resource.GroupVersionKind()
	live, err := f.survey.Client.Resource(item.Resource.Version).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && live.UID != o.UID:
		return nil // deleted meanwhile
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		live = o // as it was listed
	}
	found.Object = finalizers.Object{Object: live, Kind: gvk, Resource: item.Resource.Version.GroupResource()}
	f.readDetails(ctx, &found)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found = append(f.found, found)
	return nil
}

// tooManyOwners returns the objects older than a time with too many owners. It uses only listed
// objects, because reading thousands of owners takes too long.
func tooManyOwners(s *survey.Survey, now time.Time, than time.Duration) []ManyOwners {
	var list []ManyOwners
	for id, item := range s.Items {
		m := item.Meta
		if len(m.OwnerReferences) <= graph.ManyOwners || m.DeletionTimestamp != nil || now.Sub(m.CreationTimestamp.Time) <= than {
			continue
		}
		view, _ := s.Graph.Lookup(id)
		missing := len(m.OwnerReferences) - len(view.Claims)
		for _, claim := range view.Claims {
			if claim.State == graph.Unseen || claim.State == graph.Elsewhere {
				missing++
			}
		}
		if missing != 0 {
			list = append(list, ManyOwners{
				Object: record.ObjectOf(s.Object(item)), Resource: item.Resource.Version.GroupResource().String(),
				Created: m.CreationTimestamp, Owners: len(m.OwnerReferences), NotFound: missing,
			})
		}
	}
	slices.SortFunc(list, func(a, b ManyOwners) int {
		return cmp.Or(cmp.Compare(b.Owners, a.Owners), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// readDetails reads the status of a namespace, and the node of a pod.
func (f *finder) readDetails(ctx context.Context, found *Item) {
	var err error
	switch id := found.Kind; {
	case id.Group == "" && id.Kind == "Namespace":
		var n *corev1.Namespace
		if n, err = f.kube.CoreV1().Namespaces().Get(ctx, found.GetName(), metav1.GetOptions{}); err == nil {
			found.Namespace = n
		}
	case id.Group == "" && id.Kind == "Pod" && len(found.GetFinalizers()) == 0:
		var p *corev1.Pod
		if p, err = f.kube.CoreV1().Pods(found.GetNamespace()).Get(ctx, found.GetName(), metav1.GetOptions{}); err == nil {
			found.Node = p.Spec.NodeName
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.unread = append(f.unread, fmt.Sprintf("%s %s: %v", found.Resource, found.GetName(), err))
	}
}

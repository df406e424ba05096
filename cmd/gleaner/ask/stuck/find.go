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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

const readsAtOnce = 8

// Question is what is looked for.
type Question struct {
	Config     *rest.Config
	Gleaner    client.Reader // of Gleaner's resources
	Namespace  string        // none: all, and what is in none
	LongerThan time.Duration
	Told       func(doing string) // is told what is being done; may be nil
}

// Find looks through a cluster.
func Find(ctx context.Context, q Question) (Report, error) {
	r := Report{LongerThan: metav1.Duration{Duration: q.LongerThan}, Namespace: q.Namespace, At: metav1.Now()}
	book := whose.Read(ctx, q.Gleaner)
	s, err := survey.Live(ctx, survey.Options{Config: q.Config, Namespace: q.Namespace, Now: time.Now, Listed: func(done, of int) {
		q.tell(fmt.Sprintf("listed %d of %d types", done, of))
	}})
	if err != nil {
		return r, err
	}
	r.Unknown = append(slices.Clone(book.Unread), survey.Lines(s.Unread)...)
	f := &finder{Question: q, survey: s, at: r.At.Time, stuck: book.Stuck()}
	if f.kube, err = kubernetes.NewForConfig(q.Config); err != nil {
		return r, fmt.Errorf("make client: %w", err)
	}
	if err := f.find(ctx); err != nil {
		return r, err
	}
	r.Unknown = append(r.Unknown, f.unread...)
	r.TooManyOwners = tooManyOwners(s, r.At.Time, q.LongerThan)
	r.Objects, r.Groups = len(f.found), Of(f.found, book)
	for _, found := range f.found {
		if !longer(found.GetDeletionTimestamp(), q.LongerThan, r.At.Time) {
			r.Early++
		}
	}
	return r, nil
}

func (q Question) tell(doing string) {
	if q.Told != nil {
		q.Told(doing)
	}
}

type finder struct {
	Question
	survey *survey.Survey
	kube   kubernetes.Interface
	at     time.Time
	stuck  map[types.UID]bool // that their finalizers can't go on with, however short that is

	mu     sync.Mutex // covers what follows
	found  []Found
	unread []string
}

// find reads each object that is stuck once more, with who has written it.
func (f *finder) find(ctx context.Context) error {
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(readsAtOnce)
	for id, item := range f.survey.Items {
		if at := item.Meta.DeletionTimestamp; at == nil || !longer(at, f.LongerThan, f.at) && !f.stuck[item.Meta.UID] {
			continue
		}
		facts, ok := f.survey.Facts(ctx, id) // not for use by several at the same time
		found := Found{Resource: item.Resource.Version.GroupResource().String()}
		if ok && facts.Object.Terminating && (facts.Object.Foreground || facts.Object.Orphan) {
			found.WaitsFor, found.Blocking = record.BlockersOf(facts), facts.Blocking
		}
		reads.Go(func() error { return f.read(ctx, item, found) })
	}
	return reads.Wait()
}

func (f *finder) read(ctx context.Context, item survey.Item, found Found) error {
	o, gvk := item.Meta, item.Resource.GroupVersionKind()
	live, err := f.survey.Client.Resource(item.Resource.Version).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && live.UID != o.UID:
		return nil // it went meanwhile
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		live = o // as it was listed
	}
	found.Object = whose.Object{Object: live, Kind: gvk, Resource: item.Resource.Version.GroupResource()}
	f.more(ctx, &found)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found = append(f.found, found)
	return nil
}

// tooManyOwners are the objects that have been there for longer than a time, with too many
// owners. They are told from what was listed: to read thousands of owners is what takes long.
func tooManyOwners(s *survey.Survey, now time.Time, than time.Duration) []Crowded {
	var list []Crowded
	for id, item := range s.Items {
		m := item.Meta
		if len(m.OwnerReferences) <= graph.ManyOwners || m.DeletionTimestamp != nil || now.Sub(m.CreationTimestamp.Time) <= than {
			continue
		}
		view, _ := s.Graph.Look(id)
		missing := len(m.OwnerReferences) - len(view.Claims)
		for _, claim := range view.Claims {
			if claim.Known == graph.Unseen || claim.Known == graph.Elsewhere {
				missing++
			}
		}
		if missing != 0 {
			list = append(list, Crowded{
				Object: record.ObjectOf(s.Object(item)), Resource: item.Resource.Version.GroupResource().String(),
				Created: m.CreationTimestamp, Owners: len(m.OwnerReferences), NotFound: missing,
			})
		}
	}
	slices.SortFunc(list, func(a, b Crowded) int {
		return cmp.Or(cmp.Compare(b.Owners, a.Owners), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// more reads what is not in the metadata of a namespace, and of a pod.
func (f *finder) more(ctx context.Context, found *Found) {
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

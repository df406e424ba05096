package budgeter

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/policies"
)

// pageSize is the number of objects that are listed at once.
const pageSize = 1000

// Counter counts objects. All fields are required.
type Counter struct {
	Objects metadata.Interface
	Catalog func() *catalog.Catalog
	Reader  modulecall.Reader // reads namespaces
}

// Count counts the objects that a budget selects, except for those that are being deleted. If the context ends before, the
// result is the number of those counted so far, which allows fewer deletions; an error if there are none yet.
func (c Counter) Count(ctx context.Context, of *policies.Policy) (n int64, err error) {
	for _, r := range c.Catalog().Collected() {
		if r.Namespaced || of.Namespace == "" {
			if of.Selects(r.Version.GroupResource()) {
				err = c.countResource(ctx, of, r, &n)
			}
		}
		switch {
		case err != nil && ctx.Err() != nil && n > 0:
			return n, nil
		case err != nil:
			return 0, err
		}
	}
	return n, nil
}

func (c Counter) countResource(ctx context.Context, of *policies.Policy, r catalog.Resource, n *int64) error {
	options := metav1.ListOptions{Limit: pageSize}
	if of.ObjectSelector != nil {
		options.LabelSelector = of.ObjectSelector.String()
	}
	for {
		page, err := c.Objects.Resource(r.Version).Namespace(of.Namespace).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s: %w", r.Version.GroupResource(), err)
		}
		for i := range page.Items {
			counts, err := c.counts(ctx, of, &page.Items[i])
			if err != nil {
				return err
			}
			if counts {
				*n++
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

func (c Counter) counts(ctx context.Context, of *policies.Policy, o *metav1.PartialObjectMetadata) (bool, error) {
	if o.DeletionTimestamp != nil {
		return false, nil
	}
	if of.NamespaceSelector == nil {
		return true, nil
	}
	namespace, err := c.Reader.Namespace(ctx, o.Namespace)
	if err != nil {
		return false, fmt.Errorf("read namespace %s: %w", o.Namespace, err)
	}
	return of.NamespaceSelector.Matches(namespace.Labels), nil
}

// count counts the objects that a percentage refers to, if that is needed.
func (l *limiter) count(ctx context.Context) error {
	l.mu.Lock()
	needed, policy := l.needsCount(), l.policy
	generation := l.resource.GetGeneration()
	l.mu.Unlock()
	if !needed {
		return nil
	}
	n, err := l.counts.do(ctx, policy.Namespace, func(ctx context.Context) (int64, error) { return l.options.Count(ctx, policy) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counting = ""; l.resource.GetGeneration() != generation {
		return nil
	}
	if err != nil {
		l.observed, l.counting = false, err.Error()
		return err
	}
	counted := l.resource.DeepCopy()
	counted.Status.Matching = &v1alpha1.MatchingObjects{Count: n, Time: metav1.NewMicroTime(l.options.Now()), Generation: generation}
	l.set(counted)
	return nil
}

// counts has the counts of each namespace take turns: one of each at a time, and a few of all.
type counts struct {
	all *semaphore.Weighted

	mu    sync.Mutex                     // covers turns
	turns map[string]*semaphore.Weighted // by namespace, "" for those of the cluster
}

func newCounts() *counts {
	return &counts{all: semaphore.NewWeighted(maxCounts), turns: map[string]*semaphore.Weighted{}}
}

func (c *counts) turn(namespace string) *semaphore.Weighted {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns[namespace] == nil {
		c.turns[namespace] = semaphore.NewWeighted(1)
	}
	return c.turns[namespace]
}

// forget forgets namespaces without budgets.
func (c *counts) forget(keep map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for namespace := range c.turns {
		if keep[namespace] == 0 {
			delete(c.turns, namespace)
		}
	}
}

func (c *counts) do(ctx context.Context, namespace string, count func(context.Context) (int64, error)) (int64, error) {
	for _, s := range []*semaphore.Weighted{c.turn(namespace), c.all} {
		if err := s.Acquire(ctx, 1); err != nil {
			return 0, err
		}
		defer s.Release(1)
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	return count(ctx)
}

// needsCount reports whether the objects have to be counted now. The caller holds mu.
func (l *limiter) needsCount() bool {
	m, window := l.resource.Status.Matching, l.resource.Spec.Window.Duration
	switch {
	case l.problem != "" || l.resource.Percentage() == 0:
		return false
	case l.needsFirstCount():
		return true
	}
	age := l.options.Now().Sub(m.Time.Time)
	if l.line.Len() == 0 && !l.wanted {
		return false // nothing is to be deleted
	}
	return age < 0 || age >= window || l.resource.Ledger().Used() == 0 && age >= max(window/countShare, minCountAge)
}

package gather

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// lookForTypes adds a failure for each owner that orphans while discovery fails for a
// group version and has done so since the start: dependents of its types can't be listed,
// since nobody knows which types those are.
func (b *Barrier) lookForTypes(ctx context.Context, owners map[graph.ID]graph.View, failures map[graph.ID]error) {
	var orphaning []graph.ID
	for id, owner := range owners {
		if b.orphans(owner) && failures[id] == nil {
			orphaning = append(orphaning, id)
		}
	}
	if len(orphaning) == 0 {
		return
	}
	if err := b.typesUnknown(ctx); err != nil {
		for _, id := range orphaning {
			failures[id] = err
		}
	}
}

// typesUnknown returns an error if types may be served that the catalog lacks because
// discovery failed for their group version.
func (b *Barrier) typesUnknown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	var mu sync.Mutex // covers found
	var found []error
	var group errgroup.Group
	group.SetLimit(barrierLists)
	for _, gv := range b.sources.Catalog().Unknown() {
		group.Go(func() error {
			if err := b.empty(ctx, gv); err != nil {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, err)
			}
			return nil // one group version says nothing about another
		})
	}
	_ = group.Wait() // always nil
	return errors.Join(found...)
}

var errTypesUnknown = errors.New("which types it serves is not known")

func (b *Barrier) empty(ctx context.Context, gv schema.GroupVersion) error {
	err := errTypesUnknown
	if b.sources.Empty != nil {
		err = b.sources.Empty(ctx, gv)
	}
	if err != nil {
		return fmt.Errorf("list the objects of %s for dependents: %w", gv, err)
	}
	return nil
}

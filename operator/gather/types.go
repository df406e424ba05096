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

// checkUnknownTypes adds a failure for each owner that orphans while discovery of a group
// version has failed since the start: its types are unknown, so dependents of these types
// cannot be listed.
func (b *Barrier) checkUnknownTypes(ctx context.Context, owners map[graph.ID]graph.View, failures map[graph.ID]error) {
	var orphaning []graph.ID
	for id, owner := range owners {
		if b.orphans(owner) && failures[id] == nil {
			orphaning = append(orphaning, id)
		}
	}
	if len(orphaning) == 0 {
		return
	}
	if err := b.verifyUnknownEmpty(ctx); err != nil {
		for _, id := range orphaning {
			failures[id] = err
		}
	}
}

// verifyUnknownEmpty returns an error if types may be served that the catalog lacks because
// discovery of their group version failed.
func (b *Barrier) verifyUnknownEmpty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	var mu sync.Mutex // covers found
	var found []error
	var group errgroup.Group
	group.SetLimit(barrierConcurrency)
	for _, gv := range b.sources.Catalog().UnknownVersions() {
		group.Go(func() error {
			if err := b.verifyEmpty(ctx, gv); err != nil {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, err)
			}
			return nil // a failed group version does not affect others
		})
	}
	_ = group.Wait() // always nil
	return errors.Join(found...)
}

var errTypesUnknown = errors.New("discovery failed, so its types are unknown")

func (b *Barrier) verifyEmpty(ctx context.Context, gv schema.GroupVersion) error {
	err := errTypesUnknown
	if b.sources.VerifyEmpty != nil {
		err = b.sources.VerifyEmpty(ctx, gv)
	}
	if err != nil {
		return fmt.Errorf("list the objects of %s for dependents: %w", gv, err)
	}
	return nil
}

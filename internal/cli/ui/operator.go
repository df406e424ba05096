package ui

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/internal/ui/page"
	"github.com/gleaner-dev/gleaner/operator/cascadelog"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

const (
	connectedFor = 5 * time.Minute // for which connections to replicas are used
	retryAfter   = 5 * time.Second // after replicas could not be found, or queried

	maxNewest    = 2000 // records that are counted
	maxCompleted = 10
)

// operator has connections to the operator's replicas.
type operator struct {
	options replicas.Options

	mu    sync.RWMutex // covers what follows; it is held while replicas are used
	all   []*replicas.Replica
	until time.Time // when they are looked for again
}

func newOperator(o replicas.Options) *operator { return &operator{options: o} }

// use calls a function with connections to the replicas.
func (o *operator) use(ctx context.Context, do func([]*replicas.Replica)) error {
	o.mu.RLock()
	if time.Now().Before(o.until) {
		defer o.mu.RUnlock()
		do(o.all)
		return nil
	}
	o.mu.RUnlock()
	if err := o.connect(ctx); err != nil {
		return err
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	do(o.all)
	return nil
}

func (o *operator) connect(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Now().Before(o.until) {
		return nil // another request has just done it
	}
	replicas.Close(o.all)
	o.all = nil
	all, err := replicas.Find(ctx, o.options)
	if err != nil {
		return err
	}
	o.all, o.until = all, time.Now().Add(connectedFor)
	if len(all) == 0 {
		o.until = time.Now().Add(retryAfter)
	}
	return nil
}

// close closes the connections.
func (o *operator) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	replicas.Close(o.all)
	o.all, o.until = nil, time.Time{}
}

// doubt has replicas looked for again soon, since one could not be queried.
func (o *operator) doubt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if soon := time.Now().Add(retryAfter); soon.Before(o.until) {
		o.until = soon
	}
}

// records implements server.Sources.Records.
func (o *operator) records(ctx context.Context, s replicas.Selection) (found replicas.Records, err error) {
	err = o.use(ctx, func(all []*replicas.Replica) { found = replicas.QueryRecords(ctx, all, s) })
	switch {
	case err != nil:
		return found, fmt.Errorf("read the operator's records: %w", err)
	case len(found.Queried)+len(found.Unreachable) == 0:
		return found, fmt.Errorf("no operator of Gleaner was found, which has the records: gleaner doctor says why")
	case len(found.Unreachable) != 0:
		o.doubt()
	}
	return found, ctx.Err()
}

// now returns what the operator says about itself and what it does.
func (o *operator) now(ctx context.Context) (n page.Now) {
	err := o.use(ctx, func(all []*replicas.Replica) {
		n.CascadesKnown = len(all) != 0
		n.Installed = len(all) != 0
		n.Replicas = replicas.QueryHealth(ctx, all)
		found := replicas.QueryRecords(ctx, all, replicas.Selection{InMemory: true, Limit: maxNewest})
		n.RatesKnown = found.Since != nil // of a leader
		n.Rates = page.NewRates(found.Entries, found.Since, time.Now())
		for _, r := range all {
			var c debug.Cascades
			if err := r.Get(ctx, "/debug/gc/cascades", &c); err != nil {
				n.CascadesKnown = false
				n.Unread = append(n.Unread, "cascades of "+r.Name+": "+err.Error())
				continue
			}
			n.Cascades = append(n.Cascades, c.InProgress...)
			n.Completed = append(n.Completed, c.Completed...)
			var q debug.Queue
			if err := r.Get(ctx, "/debug/gc/queue", &q); err != nil {
				n.Unread = append(n.Unread, "queue of "+r.Name+": "+err.Error())
				continue
			}
			n.Queue.Length += q.Length
			n.Queue.Oldest = append(n.Queue.Oldest, q.Oldest...)
		}
	})
	if err != nil {
		n.Unread = append(n.Unread, err.Error())
	}
	if len(n.Unread) != 0 {
		o.doubt()
	}
	slices.SortStableFunc(n.Completed, func(a, b cascadelog.Completed) int { return b.Completed.Compare(a.Completed) })
	n.Completed = n.Completed[:min(len(n.Completed), maxCompleted)]
	return n
}

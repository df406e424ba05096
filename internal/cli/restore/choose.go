package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"filippo.io/age"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/restore"
)

// A selection is what is to be restored: exactly one of uid, cascade, since and name is set.
type selection struct {
	uid       types.UID
	cascade   types.UID // of the object whose deletion began it
	since     time.Time
	byGleaner bool    // with since: only what Gleaner deleted
	namespace *string // nil: all, and cluster-scoped objects

	name    string
	isKind  func(schema.GroupKind) bool // of the named object
	isLocal bool                        // the named object is in a namespace, as far as is known
}

// chooser selects entries.
type chooser struct {
	entries.Reader
	identities []age.Identity
	corrupt    error // of headers, which are missing
}

// each reads headers. Corrupt ones are noted: what they are is not known, and the others can be
// restored.
func (c *chooser) each(ctx context.Context, q archive.Query, yield func(archive.Header)) error {
	err := entries.Each(ctx, c.Reader, q, yield)
	if errors.Is(err, archive.ErrCorrupt) {
		c.corrupt = err
		return nil
	}
	return err
}

// choose returns the entries to restore, newest first, and notes about their choice.
func (c *chooser) choose(ctx context.Context, s selection) (found []archive.Header, notes []string, err error) {
	switch {
	case s.uid != "":
		found, err = c.below(ctx, s.uid)
	case s.cascade != "":
		found, err = c.below(ctx, s.cascade)
	case !s.since.IsZero():
		found, err = c.since(ctx, s)
	default:
		return c.named(ctx, s)
	}
	return found, nil, err
}

// since returns what was archived in a period.
func (c *chooser) since(ctx context.Context, s selection) ([]archive.Header, error) {
	var all restore.Collection
	err := c.each(ctx, archive.Query{Since: s.since, Namespace: s.namespace}, func(h archive.Header) {
		if !s.byGleaner || h.Cause.By == archive.ByGleaner {
			all.Add(h)
		}
	})
	return all.All(), err
}

// named returns the newest of the former objects with a name, and what is below it.
func (c *chooser) named(ctx context.Context, s selection) (found []archive.Header, notes []string, err error) {
	var all restore.Collection
	query := archive.Query{Name: s.name}
	if s.isLocal {
		query.Namespace = s.namespace
	}
	err = c.each(ctx, query, func(h archive.Header) {
		if s.isKind(h.Object.GroupKind()) && (s.namespace == nil || h.Object.Namespace == "" || h.Object.Namespace == *s.namespace) {
			all.Add(h)
		}
	})
	if err != nil || all.Len() == 0 {
		return nil, nil, err
	}
	former := all.All()
	for _, h := range former[1:] {
		if h.Object.Namespace != former[0].Object.Namespace {
			return nil, nil, fmt.Errorf("objects with the name %q were in namespaces %s and %s: select one with -n", s.name, h.Object.Namespace, former[0].Object.Namespace)
		}
	}
	if len(former) > 1 {
		notes = append(notes, describeFormer(former)...)
	}
	found, err = c.below(ctx, former[0].Object.UID)
	return found, notes, err
}

// maxFormer is the number of former objects of a name that are listed.
const maxFormer = 10

// describeFormer says which of several former objects is restored.
func describeFormer(former []archive.Header) []string {
	lines := []string{fmt.Sprintf("%d former objects were %s. The newest is restored; choose another with --uid:", len(former), former[0].Object)}
	for i, h := range former {
		if i == maxFormer {
			return append(lines, fmt.Sprintf("  and %d older ones, listed by gleaner archive list", len(former)-maxFormer))
		}
		lines = append(lines, fmt.Sprintf("  %s  archived %s", h.Object.UID, h.Time.UTC().Format(time.RFC3339)))
	}
	return lines
}

// below returns an object and everything below it. Dependents of an object in a namespace are in that
// namespace, so only its entries are read.
func (c *chooser) below(ctx context.Context, root types.UID) ([]archive.Header, error) {
	var roots, all restore.Collection
	if err := c.each(ctx, archive.Query{UID: root}, roots.Add); err != nil {
		return nil, err
	}
	query := archive.Query{}
	if roots.Len() != 0 {
		if namespace := roots.All()[0].Object.Namespace; namespace != "" {
			query.Namespace = &namespace
		}
	}
	if err := c.each(ctx, query, all.Add); err != nil {
		return nil, err
	}
	uids := []types.UID{root}
	if roots.Len() != 0 {
		content, err := c.content(ctx, &all, roots.All()[0])
		if err != nil {
			return nil, err
		}
		uids = append(uids, content...)
	}
	return all.Cascade(uids...), nil
}

// content returns what was in a namespace when its deletion began.
func (c *chooser) content(ctx context.Context, all *restore.Collection, h archive.Header) ([]types.UID, error) {
	if h.Object.GroupKind() != (schema.GroupKind{Kind: "Namespace"}) {
		return nil, nil
	}
	o, err := entries.Object(ctx, c.Reader, h, c.identities)
	if err != nil {
		return nil, err
	}
	since := h.Time
	if deleted := o.GetDeletionTimestamp(); deleted != nil && deleted.Time.Before(since) {
		since = deleted.Time
	}
	return all.InNamespace(h.Object.Name, since), nil
}

// limits of one restore, which is in memory.
const (
	maxObjects = 100_000
	maxBytes   = 1 << 30 // of stored bodies

	bodyConcurrency = 4 // what the operator serves at the same time
)

// objects reads the objects of entries. One that can't be read is a conflict.
func (c *chooser) objects(ctx context.Context, headers []archive.Header, done func(int)) (found []*unstructured.Unstructured, conflicts []Item, err error) {
	var size int64
	for _, h := range headers {
		size += h.Size
	}
	if len(headers) > maxObjects || size > maxBytes {
		return nil, nil, fmt.Errorf("%d objects with %d bytes are more than can be restored at once (%d objects, %d bytes): select fewer", len(headers), size, maxObjects, maxBytes)
	}
	objects, errs := make([]*unstructured.Unstructured, len(headers)), make([]error, len(headers))
	var group errgroup.Group
	group.SetLimit(bodyConcurrency)
	for i, h := range headers {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			objects[i], errs[i] = entries.Object(ctx, c.Reader, h, c.identities)
			return nil
		})
		done(i)
	}
	_ = group.Wait() // each has its own error
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	restored := map[types.UID]struct{}{}
	for _, h := range headers {
		restored[h.Object.UID] = struct{}{}
	}
	for i, h := range headers {
		if errs[i] == nil {
			restore.AddFormerOwners(objects[i], h.FormerOwners, restored)
			found = append(found, objects[i])
			continue
		}
		key := restore.Key{GroupKind: h.Object.GroupKind(), Namespace: h.Object.Namespace, Name: h.Object.Name}
		conflicts = append(conflicts, itemOf(key, h.Object.UID).with("can't be read from the archive: "+errs[i].Error()))
	}
	return found, conflicts, nil
}

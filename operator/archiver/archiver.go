// Package archiver archives objects before they are deleted: as a step of the writer, what
// Gleaner deletes, and for the finalizers of archive policies, what anyone else does.
//
// What can't be archived is kept, unless each policy that selects it says onFailure:
// Continue. It decides nothing else about objects, and writes nothing to them.
package archiver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// Options configure an Archiver. All fields are required, unless stated otherwise.
type Options struct {
	// Store returns the store, or why there is none at the moment.
	Store func() (archive.Store, error)

	Snapshot func() *policyset.Snapshot // nil until the policies are known
	Catalog  func() *catalog.Catalog
	Reader   modulecall.Reader
	Bulk     *bulkread.Reader // may have objects, which then are not read one by one; optional
	Now      func() time.Time

	// Lookup returns an object as the graph has it.
	Lookup func(graph.ID) (graph.View, bool)

	// OnChange is called when what Stats returns has changed. It must not block.
	OnChange func()
}

// Archiver archives objects. Create it with New. Its methods may be called concurrently.
type Archiver struct {
	Options
	lineage lineage
	former  former
	stored  stored
	tally   tally
}

// New returns an Archiver.
func New(o Options) *Archiver {
	return &Archiver{Options: o, lineage: lineage{began: o.Now()}, tally: newTally()}
}

// put seals an object for the policies that archive it, and stores it. When it returns nil, the
// entry is durable.
func (a *Archiver) put(ctx context.Context, object *unstructured.Unstructured, by []*policyset.Archive, cause archive.Cause) error {
	if some := usable(by); len(some) != 0 {
		by = some
	}
	recipients, err := recipientsOf(by)
	if err != nil {
		return err
	}
	now := a.Now()
	if a.stored.has(object, by, cause, now) {
		return nil
	}
	header := archive.Header{Time: now, Cause: cause, FormerOwners: a.former.of(object)}
	for _, p := range by {
		header.Policies = append(header.Policies, p.Policy.String())
		if expires := now.Add(p.TTL); expires.After(header.Expires) {
			header.Expires = expires
		}
	}
	entry, err := archive.Seal(object, header, recipients)
	if err != nil {
		return err
	}
	store, err := a.Store()
	if err != nil {
		return err
	}
	if err := store.Put(ctx, entry); err != nil {
		return fmt.Errorf("store %s: %w", entry.Object, err)
	}
	a.stored.add(object, by, cause, now)
	a.tally.stored(by, entry.Size)
	a.OnChange()
	return nil
}

// recipientsOf returns all recipients of policies: what one of them has encrypted is not
// stored in plain text for another one, and each of their readers can restore it.
func recipientsOf(by []*policyset.Archive) ([]age.Recipient, error) {
	var keys []string
	known := map[string]bool{}
	for _, p := range by {
		if !p.Problem.IsZero() {
			return nil, fmt.Errorf("%s: %s", p.Policy, p.Problem.Message)
		}
		for _, key := range p.Recipients {
			if !known[key] {
				known[key] = true
				keys = append(keys, key)
			}
		}
	}
	return archive.ParseRecipients(strings.Join(keys, "\n"))
}

// keeps reports whether one of the policies keeps what can't be archived. If it is not known which
// policies there are, it is kept.
func keeps(by []*policyset.Archive) bool {
	return len(by) == 0 || slices.ContainsFunc(by, func(p *policyset.Archive) bool { return !p.Continue })
}

// usable returns the policies without those that can't archive anything, and don't keep it.
func usable(by []*policyset.Archive) []*policyset.Archive {
	return slices.DeleteFunc(slices.Clone(by), func(p *policyset.Archive) bool { return p.Continue && !p.Problem.IsZero() })
}

// fail counts a failure to archive an object.
func (a *Archiver) fail(object archive.Reference, by []*policyset.Archive, err error) {
	a.tally.failed(a.Now(), by, fmt.Sprintf("%s: %s", object, err))
	a.OnChange()
}

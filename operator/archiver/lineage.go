package archiver

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

const (
	// maxLineage is the maximum number of objects of which is remembered why they were deleted.
	// Of twice as many, half are forgotten at once. An object takes some 200 bytes.
	maxLineage = 20_000

	// resumed is for how long after the start the archive is asked about an owner that is not
	// remembered: its cascade may have begun before.
	resumed = 10 * time.Minute
)

// causeOf returns why a write deletes its target.
func (a *Archiver) causeOf(ctx context.Context, w writer.Write) archive.Cause {
	return archive.Cause{
		By: archive.ByGleaner, Reason: w.Cause.Reason, Message: w.Cause.Message, Policy: w.Cause.Policy,
		Root: a.rootOf(ctx, w.Cause.Owner, w.Target.UID),
	}
}

// rootOf returns the object whose deletion began the cascade in which an object is deleted because
// of an owner. It is the first owner of which is not known why it was deleted.
func (a *Archiver) rootOf(ctx context.Context, owner, object types.UID) types.UID {
	if owner == "" {
		return object
	}
	if cause, ok := a.lineage.cause(owner); ok {
		return cause.Root
	}
	cause := archive.Cause{By: archive.ByOther, Root: owner}
	if a.Now().Sub(a.lineage.began) < resumed {
		if archived, ok := a.archivedCause(ctx, owner); ok {
			cause = archived
		}
	}
	a.lineage.put(owner, cause)
	return cause.Root
}

// archivedCause returns why an object was deleted, if the archive has it.
func (a *Archiver) archivedCause(ctx context.Context, uid types.UID) (cause archive.Cause, found bool) {
	store, err := a.Store()
	if err != nil {
		return cause, false
	}
	err = store.Headers(ctx, archive.Query{UID: uid}, func(h archive.Header) bool {
		cause, found = h.Cause, h.Cause.Root != ""
		return false
	})
	return cause, found && err == nil
}

// lineage remembers why objects were deleted, for a while.
type lineage struct {
	began  time.Time
	causes memory[archive.Cause]
}

func (l *lineage) put(uid types.UID, c archive.Cause) { l.causes.put(uid, c, maxLineage) }

func (l *lineage) forget(uid types.UID) { l.causes.forget(uid) }

func (l *lineage) cause(uid types.UID) (archive.Cause, bool) { return l.causes.get(uid) }

package run

import (
	"context"
	"errors"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archiver"
	"github.com/gleaner-dev/gleaner/operator/archivestore"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/recordlog"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// Archive configures where deleted objects and decision records are kept.
type Archive struct {
	// Opened is the store, or Open opens it whenever this replica comes to lead. The Operator
	// closes it.
	Opened archive.Store
	Open   func(context.Context) (archive.Store, error)

	Limits archive.Limits
}

// expireInterval is the interval in which what has expired is removed from the archive.
const expireInterval = time.Minute

// archiving is what keeps deleted objects and decision records.
type archiving struct {
	archiver *archiver.Archiver

	// Without an archive, these are nil, and the archiver keeps the objects that archive policies
	// select from being deleted by Gleaner, unless onFailure is Continue.
	source *archivestore.Source
	log    *recordlog.Log
}

// connectArchive makes what archives. It sends no requests yet.
func (op *Operator) connectArchive(from reads) {
	store := func() (archive.Store, error) { return nil, errors.New(policyset.NoStore) }
	if o := op.options.Archive; o != nil {
		log := op.log.WithName("archive")
		op.archiving.source = archivestore.New(archivestore.Options{
			Opened: o.Opened, Open: o.Open, Leading: op.gate.IsLeading, Changed: op.gate.Changed, Limits: o.Limits,
			Interval: expireInterval, Now: op.now, Log: log,
		})
		store = op.archiving.source.Store
		op.archiving.log = recordlog.New(recordlog.Options{Store: store, Now: op.now, Log: log})
	}
	op.archiving.archiver = archiver.New(archiver.Options{
		Store: store, Snapshot: op.currentSnapshot, Catalog: op.types, Reader: from.reader, Bulk: from.bulk, Now: op.now, Lookup: op.store.Lookup,
		OnChange: func() { op.statusWriter.FinalizersChanged() },
	})
}

func (op *Operator) currentSnapshot() *policyset.Snapshot { return op.snapshots.Current() }

// handler returns what archives objects for the finalizers of archive policies; nil without an
// archive.
func (a archiving) handler() policyset.Archiver {
	if a.source == nil {
		return nil
	}
	return a.archiver
}

// steps returns the steps that writes pass.
func (a archiving) steps() []writer.Step {
	return []writer.Step{a.archiver.Step()}
}

// keep returns what keeps decision records; nil without an archive.
func (a archiving) keep() func(record.Entry) {
	if a.source == nil {
		return nil
	}
	return a.log.Add
}

// status returns what the status of archive policies shows; nil without an archive.
func (a archiving) status() *policystatus.Archive {
	if a.source == nil {
		return nil
	}
	return &policystatus.Archive{Store: a.source.Health(), Archived: func(policy types.UID) policystatus.Archived {
		stats := a.archiver.Stats(policy)
		archived := policystatus.Archived{Objects: stats.Archived, Bytes: stats.Bytes, Missed: stats.Missed}
		if !stats.FailedAt.IsZero() {
			archived.LastFailure = &v1alpha1.Failure{Time: metav1.NewTime(stats.FailedAt), Message: stats.Failure}
		}
		return archived
	}}
}

// forget forgets what was counted for archive policies that are gone. A nil snapshot is not known.
func (a archiving) forget(s *policyset.Snapshot) {
	if s == nil {
		return
	}
	existing := map[types.UID]bool{}
	for _, p := range s.Archives {
		existing[p.Object.GetUID()] = true
	}
	a.archiver.Forget(existing)
}

// ArchiveReader returns what reads the archive; nil if there is none.
func (op *Operator) ArchiveReader() archive.Reader {
	if op.archiving.source == nil {
		return nil
	}
	return op.archiving.source.Reader()
}

// run returns what has to run; nothing without an archive.
func (a archiving) run() []manager.RunnableFunc {
	if a.source == nil {
		return nil
	}
	return []manager.RunnableFunc{a.store}
}

// store stores records, and keeps the store open until those are stored that wait when ctx ends.
func (a archiving) store(ctx context.Context) error {
	open, closing := context.WithCancel(context.WithoutCancel(ctx))
	defer closing()
	ended := make(chan error, 1)
	go func() { ended <- a.source.Run(open) }()
	err := a.log.Run(ctx)
	closing()
	return errors.Join(err, <-ended)
}

// checkRecipients returns what is wrong with the recipients of an archive policy.
func checkRecipients(keys []string) error {
	_, err := archive.ParseRecipients(strings.Join(keys, "\n"))
	return err
}

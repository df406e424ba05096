package run

import (
	"context"
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

// archiving is what keeps deleted objects and decision records. It is nil without an archive.
type archiving struct {
	source   *archivestore.Source
	archiver *archiver.Archiver
	log      *recordlog.Log
}

// connectArchive makes what archives, if there is an archive. It sends no requests yet.
func (op *Operator) connectArchive(from reads) {
	o := op.options.Archive
	if o == nil {
		return
	}
	log := op.log.WithName("archive")
	source := archivestore.New(archivestore.Options{
		Opened: o.Opened, Open: o.Open, Leading: op.gate.IsLeading, Changed: op.gate.Changed, Limits: o.Limits,
		Interval: expireInterval, Now: op.now, Log: log,
	})
	op.archiving = &archiving{
		source: source,
		archiver: archiver.New(archiver.Options{
			Store: source.Store, Snapshot: op.currentSnapshot, Catalog: op.types, Reader: from.reader, Bulk: from.bulk, Now: op.now,
			OnChange: func() { op.statusWriter.FinalizersChanged() },
		}),
		log: recordlog.New(recordlog.Options{Store: source.Store, Now: op.now, Log: log}),
	}
}

func (op *Operator) currentSnapshot() *policyset.Snapshot { return op.snapshots.Current() }

// handler returns what archives objects for the finalizers of archive policies; nil without an
// archive.
func (a *archiving) handler() policyset.Archiver {
	if a == nil {
		return nil
	}
	return a.archiver
}

// steps returns the steps that writes pass.
func (a *archiving) steps() []writer.Step {
	if a == nil {
		return nil
	}
	return []writer.Step{a.archiver.Step()}
}

// keep returns what keeps decision records; nil without an archive.
func (a *archiving) keep() func(record.Entry) {
	if a == nil {
		return nil
	}
	return a.log.Add
}

// status returns what the status of archive policies shows; nil without an archive.
func (a *archiving) status() *policystatus.Archive {
	if a == nil {
		return nil
	}
	return &policystatus.Archive{Store: a.source.Health(), Archived: func(policy types.UID) policystatus.Archived {
		stats := a.archiver.Stats(policy)
		archived := policystatus.Archived{Objects: stats.Archived, Bytes: stats.Bytes, Missed: stats.Missed}
		if !stats.FailedAt.IsZero() {
			archived.LastFailure = &v1alpha1.ArchiveFailure{Time: metav1.NewTime(stats.FailedAt), Message: stats.Failure}
		}
		return archived
	}}
}

// ArchiveReader returns what reads the archive; nil if there is none.
func (op *Operator) ArchiveReader() archive.Reader {
	if op.archiving == nil {
		return nil
	}
	return op.archiving.source.Reader()
}

// run returns what has to run; nothing without an archive.
func (a *archiving) run() []manager.RunnableFunc {
	if a == nil {
		return nil
	}
	return []manager.RunnableFunc{a.source.Run, a.log.Run}
}

// checkRecipients returns what is wrong with the recipients of an archive policy.
func checkRecipients(keys []string) error {
	_, err := archive.ParseRecipients(strings.Join(keys, "\n"))
	return err
}

package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var (
	at    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	child = record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "child", UID: "child"}
)

func entry(action record.Action, how string, reason record.Reason) record.Entry {
	e := record.Entry{Time: at, Object: child, Action: action, Detail: how, Reason: reason}
	if action != record.None {
		e.Result = "Done"
	}
	return e
}

const noDelete = "The records begin at 2026-01-02T03:04:05Z; Gleaner has not deleted it since then. " +
	"See the API server's audit log for whether it existed and who deleted it."

func gone(change func(*Data)) Explanation {
	f := Data{Name: child, Resources: &finalizers.Resources{}, OperatorFound: true, Records: replicas.Records{Queried: []string{"a"}, Since: &at}}
	change(&f)
	return FromData(f)
}

// Whoever could not be asked has not said that it did not do it.
func TestSummary_DeletedObject(t *testing.T) {
	for claim, c := range map[string]struct {
		change func(*Data)
		want   string
	}{
		"Gleaner deleted it": {func(f *Data) {
			f.Records.Entries = []record.Entry{entry(record.Delete, "Background", decide.OwnersAbsent)}
		}, "It does not exist. Gleaner deleted it at 2026-01-02T03:04:05Z: ConfigMap shop/child: deleted (Background), OwnersAbsent."},
		"the built-in collector deleted it": {func(f *Data) {
			f.Records.Entries = []record.Entry{entry(record.None, "", decide.DeletedByCollector)}
		}, "It does not exist. The built-in garbage collector was allowed to delete it at 2026-01-02T03:04:05Z: ConfigMap shop/child: the built-in garbage collector may delete it, DeletedByCollector."},
		"Gleaner let it go, and may have deleted it before its records begin": {func(f *Data) {
			f.Records.Entries = []record.Entry{entry(record.RemoveFinalizer, "gleaner.dev/hold", decide.HoldReleased)}
		}, "It does not exist. Gleaner removed its finalizer at 2026-01-02T03:04:05Z: ConfigMap shop/child: finalizer gleaner.dev/hold removed, HoldReleased. " + noDelete},
		"Gleaner deleted one that had the name before, and let this one go": {func(f *Data) {
			before := entry(record.Delete, "Background", decide.OwnersAbsent)
			before.Object.UID = "before"
			f.Records.Entries = []record.Entry{before, entry(record.RemoveFinalizer, "gleaner.dev/hold", decide.HoldReleased)}
		}, "It does not exist. Gleaner removed its finalizer at 2026-01-02T03:04:05Z: ConfigMap shop/child: finalizer gleaner.dev/hold removed, HoldReleased. " + noDelete},
		"a hold that was taken off before it was deleted did not let it go": {func(f *Data) {
			f.Records.Entries = []record.Entry{entry(record.RemoveFinalizer, "gleaner.dev/hold", decide.HoldObsolete)}
		}, "It does not exist. Gleaner's last record about it, at 2026-01-02T03:04:05Z: "},
		"a delete that failed is none": {func(f *Data) {
			e := entry(record.Delete, "Background", decide.OwnersAbsent)
			e.Result, e.Error = "Failed", "a webhook says no"
			f.Records.Entries = []record.Entry{e}
		}, "It does not exist. Gleaner's last record about it, at 2026-01-02T03:04:05Z: "},
		"a dry run is none": {func(f *Data) {
			e := entry(record.Delete, "Background", decide.OwnersAbsent)
			e.Result = "DryRun"
			f.Records.Entries = []record.Entry{e}
		}, "It does not exist. Gleaner's last record about it, at 2026-01-02T03:04:05Z: "},
		"there is no record, as after a restart": {func(*Data) {}, "It does not exist. " + noDelete},
		"one replica could not be asked": {func(f *Data) {
			f.Records.Unreachable = []replicas.Unreachable{{Replica: "b", Reason: "it is pending"}}
		}, "It does not exist. " + noDelete + " Not all replicas could be queried."},
		"none that leads could be asked": {func(f *Data) { f.Records.Since = nil },
			"It does not exist. Whether Gleaner deleted it is unknown: the leading replica, which has the records, could not be queried."},
		"none could be asked": {func(f *Data) {
			f.Records = replicas.Records{Unreachable: []replicas.Unreachable{{Replica: "b", Reason: "it is pending"}}}
		},
			"It does not exist. No replica of the operator could be queried"},
		"none is there": {func(f *Data) { f.OperatorFound, f.Records = false, replicas.Records{} }, "It does not exist. No replica of the operator was found"},
	} {
		t.Run(claim, func(t *testing.T) {
			if e := gone(c.change); (e.State == Deleted) != (len(e.Records) != 0) || e.State == Exists || !strings.HasPrefix(e.Summary, c.want) {
				t.Errorf("%s: %s", e.State, e.Summary)
			}
		})
	}
}

func live(meta metav1.ObjectMeta, owners []decide.Owner, known bool, entries ...record.Entry) Explanation {
	meta.Namespace, meta.Name, meta.UID = "shop", "child", "child"
	for _, o := range owners {
		meta.OwnerReferences = append(meta.OwnerReferences, o.Reference)
	}
	return FromData(Data{
		Name: child, Resources: &finalizers.Resources{}, FactsKnown: known, Facts: decide.Facts{Object: graph.Object{Namespace: "shop"}, Owners: owners}, Records: replicas.Records{Entries: entries},
		Object: finalizers.Object{
			Object: &meta, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: schema.GroupResource{Resource: "configmaps"},
		},
	})
}

func owner(name string, s decide.OwnerStatus) decide.Owner {
	return decide.Owner{Reference: metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: name}, Status: s}
}

// What was not read is not taken to be absent, by whoever explains either.
func TestSummary_ExistingObject(t *testing.T) {
	for claim, c := range map[string]struct {
		owners []decide.Owner
		known  bool
		want   string
	}{
		"no owner":     {nil, true, "It is not being deleted. It has no owners"},
		"one stands":   {[]decide.Owner{owner("a", decide.Absent), owner("b", decide.Present)}, true, "It is not being deleted, because it still has owners: Secret shop/b."},
		"one unread":   {[]decide.Owner{owner("a", decide.Absent), owner("b", decide.Unknown)}, true, "It is not being deleted: Secret shop/b could not be read"},
		"all are gone": {[]decide.Owner{owner("a", decide.Absent), owner("b", decide.Absent)}, true, "Its owners are gone (Secret shop/a and Secret shop/b): it is about to be collected."},
		"not known":    {[]decide.Owner{owner("a", decide.Absent)}, false, "It is not being deleted. The state of its owners is unknown."},
	} {
		t.Run(claim, func(t *testing.T) {
			if e := live(metav1.ObjectMeta{}, c.owners, c.known); e.State != Exists || !strings.HasPrefix(e.Summary, c.want) {
				t.Errorf("%s: %s", e.State, e.Summary)
			}
		})
	}
}

// An error of the last attempt and what a module says are two things.
func TestFinalizers_ShowNewestRecord(t *testing.T) {
	until := at.Add(time.Minute)
	older, newer := entry(record.None, "example.com/x", "FinalizerError"), entry(record.None, "example.com/x", "FinalizerWaiting")
	older.Error, older.Message = "no answer", "no answer"
	newer.Message, newer.NextAttempt = "the backup runs", &until
	meta := metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: at}, Finalizers: []string{"example.com/x", "example.com/y"}}

	e := live(meta, nil, true, newer, older)
	if h := e.Finalizers[0]; h.Reason != "FinalizerError" || h.Error != "no answer" || h.Message != "" {
		t.Errorf("%+v", h)
	}
	e = live(meta, nil, true, older, newer)
	if h := e.Finalizers[0]; h.Reason != "FinalizerWaiting" || h.Message != "the backup runs" || h.Error != "" || !h.NextRetry.Time.Equal(until) {
		t.Errorf("%+v", h)
	}
	e = FromData(Data{
		Name: child, Resources: &finalizers.Resources{ReadAt: until}, FactsKnown: true, Records: replicas.Records{Entries: []record.Entry{newer}},
		Object: finalizers.Object{Object: &meta, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}},
	})
	if h := e.Finalizers[0]; h.NextRetry != nil || !h.RetryDue {
		t.Errorf("a retry that is due is said to come: %+v", h)
	}
	if h := e.Finalizers[1]; h.Reason != "" || h.Message != "" || h.Error != "" {
		t.Errorf("what is recorded of one finalizer is told of another: %+v", h)
	}
}

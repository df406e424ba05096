package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var (
	at    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	child = record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "child", UID: "child"}
)

func entry(action record.Action, how string, reason record.Reason) record.Entry {
	e := record.Entry{Time: at, Object: child, Action: action, How: how, Reason: reason}
	if action != record.None {
		e.Result = "Done"
	}
	return e
}

const noDelete = "Records exist since 2026-01-02T03:04:05Z, and Gleaner has not deleted it since then. What was done before is not recorded. " +
	"Whether it existed, and who deleted it, is in the API server's audit log."

func gone(change func(*Found)) Explanation {
	f := Found{Name: child, Book: &whose.Book{}, Running: true, Records: replicas.Records{Asked: []string{"a"}, Since: &at}}
	change(&f)
	return Of(f)
}

// Whoever could not be asked has not said that it did not do it.
func TestWhyAnObjectIsGone(t *testing.T) {
	for claim, c := range map[string]struct {
		change func(*Found)
		want   string
	}{
		"Gleaner deleted it": {func(f *Found) {
			f.Records.Entries = []record.Entry{entry(record.Delete, "Background", decide.OwnersAbsent)}
		}, "It is not there. Gleaner deleted it at 2026-01-02T03:04:05Z: ConfigMap shop/child: deleted (Background), OwnersAbsent."},
		"Gleaner let it go, and may have deleted it before its records begin": {func(f *Found) {
			f.Records.Entries = []record.Entry{entry(record.RemoveFinalizer, "gleaner.dev/hold", decide.HoldReleased)}
		}, "It is not there. Gleaner let it go at 2026-01-02T03:04:05Z: ConfigMap shop/child: finalizer gleaner.dev/hold removed, HoldReleased. " + noDelete},
		"Gleaner deleted one that had the name before, and let this one go": {func(f *Found) {
			before := entry(record.Delete, "Background", decide.OwnersAbsent)
			before.Object.UID = "before"
			f.Records.Entries = []record.Entry{before, entry(record.RemoveFinalizer, "gleaner.dev/hold", decide.HoldReleased)}
		}, "It is not there. Gleaner let it go at 2026-01-02T03:04:05Z: ConfigMap shop/child: finalizer gleaner.dev/hold removed, HoldReleased. " + noDelete},
		"a hold that was taken off before it was deleted did not let it go": {func(f *Found) {
			f.Records.Entries = []record.Entry{entry(record.RemoveFinalizer, "gleaner.dev/hold", decide.HoldObsolete)}
		}, "It is not there. The last that Gleaner recorded of it, at 2026-01-02T03:04:05Z: "},
		"a delete that failed is none": {func(f *Found) {
			e := entry(record.Delete, "Background", decide.OwnersAbsent)
			e.Result, e.Error = "Failed", "a webhook says no"
			f.Records.Entries = []record.Entry{e}
		}, "It is not there. The last that Gleaner recorded of it, at 2026-01-02T03:04:05Z: "},
		"a dry run is none": {func(f *Found) {
			e := entry(record.Delete, "Background", decide.OwnersAbsent)
			e.Result = "DryRun"
			f.Records.Entries = []record.Entry{e}
		}, "It is not there. The last that Gleaner recorded of it, at 2026-01-02T03:04:05Z: "},
		"there is no record, as after a restart": {func(*Found) {}, "It is not there. " + noDelete},
		"one replica could not be asked": {func(f *Found) {
			f.Records.Missing = []replicas.Missing{{Replica: "b", Why: "it is pending"}}
		}, "It is not there. " + noDelete + " Not all replicas could be asked."},
		"none that leads could be asked": {func(f *Found) { f.Records.Since = nil },
			"It is not there. Whether Gleaner deleted it is not known: the replica that leads, which has the records, could not be asked."},
		"none could be asked": {func(f *Found) {
			f.Records = replicas.Records{Missing: []replicas.Missing{{Replica: "b", Why: "it is pending"}}}
		},
			"It is not there. No replica of the operator could be asked"},
		"none is there": {func(f *Found) { f.Running, f.Records = false, replicas.Records{} }, "It is not there. No replica of the operator was found"},
	} {
		t.Run(claim, func(t *testing.T) {
			if e := gone(c.change); (e.State == Gone) != (len(e.Records) != 0) || e.State == There || !strings.HasPrefix(e.Summary, c.want) {
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
	return Of(Found{
		Name: child, Book: &whose.Book{}, Known: known, Facts: decide.Facts{Object: graph.Object{Namespace: "shop"}, Owners: owners}, Records: replicas.Records{Entries: entries},
		Object: whose.Object{
			Object: &meta, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: schema.GroupResource{Resource: "configmaps"},
		},
	})
}

func owner(name string, s decide.Standing) decide.Owner {
	return decide.Owner{Reference: metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: name}, Standing: s}
}

// What was not read is not taken to be absent, by whoever explains either.
func TestWhyAnObjectIsThere(t *testing.T) {
	for claim, c := range map[string]struct {
		owners []decide.Owner
		known  bool
		want   string
	}{
		"no owner":     {nil, true, "It is not being deleted. It has no owner"},
		"one stands":   {[]decide.Owner{owner("a", decide.Absent), owner("b", decide.Present)}, true, "It is not being deleted: it stays as long as Secret shop/b does."},
		"one unread":   {[]decide.Owner{owner("a", decide.Absent), owner("b", decide.Unknown)}, true, "It is not being deleted: Secret shop/b could not be read"},
		"all are gone": {[]decide.Owner{owner("a", decide.Absent), owner("b", decide.Absent)}, true, "Its owners are gone (Secret shop/a and Secret shop/b): it is about to be collected."},
		"not known":    {[]decide.Owner{owner("a", decide.Absent)}, false, "It is not being deleted. How its owners stand could not be found out."},
	} {
		t.Run(claim, func(t *testing.T) {
			if e := live(metav1.ObjectMeta{}, c.owners, c.known); e.State != There || !strings.HasPrefix(e.Summary, c.want) {
				t.Errorf("%s: %s", e.State, e.Summary)
			}
		})
	}
}

// An error of the last attempt and what a module says are two things.
func TestAHolderTellsWhatItsNewestRecordTells(t *testing.T) {
	until := at.Add(time.Minute)
	older, newer := entry(record.None, "example.com/x", "FinalizerTroubled"), entry(record.None, "example.com/x", "FinalizerWaits")
	older.Error, older.Because = "no answer", "no answer"
	newer.Because, newer.Until = "the backup runs", &until
	meta := metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: at}, Finalizers: []string{"example.com/x", "example.com/y"}}

	e := live(meta, nil, true, newer, older)
	if h := e.Holders[0]; h.Reason != "FinalizerTroubled" || h.Error != "no answer" || h.Message != "" {
		t.Errorf("%+v", h)
	}
	e = live(meta, nil, true, older, newer)
	if h := e.Holders[0]; h.Reason != "FinalizerWaits" || h.Message != "the backup runs" || h.Error != "" || !h.NextRetry.Time.Equal(until) {
		t.Errorf("%+v", h)
	}
	e = Of(Found{
		Name: child, Book: &whose.Book{At: until}, Known: true, Records: replicas.Records{Entries: []record.Entry{newer}},
		Object: whose.Object{Object: &meta, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}},
	})
	if h := e.Holders[0]; h.NextRetry != nil || !h.RetryDue {
		t.Errorf("a retry that is due is said to come: %+v", h)
	}
	if h := e.Holders[1]; h.Reason != "" || h.Message != "" || h.Error != "" {
		t.Errorf("what is recorded of one finalizer is told of another: %+v", h)
	}
}

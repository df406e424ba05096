package history_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/history"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/recordlog"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func configMap(name string) record.Object {
	return record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: name, UID: types.UID("u-" + name)}
}

// deleted is the deletion of an object because its owner is gone.
func deleted(name, owner string, after time.Duration) record.Entry {
	return record.Entry{
		Time: start.Add(after), Object: configMap(name), Action: record.Delete, Reason: "OwnersAbsent", Detail: "Background", Result: "Done",
		Owners: []record.Owner{{Object: configMap(owner), Status: "Absent"}},
	}
}

// storeOf returns a store in a folder that has entries.
func storeOf(t *testing.T, entries ...record.Entry) archive.Store {
	t.Helper()
	s, err := filestore.Open(t.TempDir(), filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	var records []archive.Record
	for _, e := range entries {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, archive.Record{Time: e.Time, UID: e.Object.UID, JSON: data})
	}
	if err := s.Append(t.Context(), records...); err != nil {
		t.Fatal(err)
	}
	return s
}

// restarted is an operator whose memory has the last of three deletions in a cascade, and whose
// store has all.
func restarted(t *testing.T) (s debug.Source, store archive.Store) {
	t.Helper()
	ring := record.NewStore(record.Limits{})
	last, _ := ring.Add(deleted("grandchild", "child", time.Hour))
	before := record.NewStore(record.Limits{})
	first, _ := before.Add(deleted("child", "root", 0))
	other, _ := before.Add(deleted("other", "elsewhere", time.Minute))
	store = storeOf(t, first, other, last)
	return debug.Source{
		Records: ring.Entries, RecordsSince: func() time.Time { return start.Add(time.Hour / 2) }, ReadAccess: debug.AllowAll,
		Stored: recordlog.Reader{Archive: store}.Entries,
	}, store
}

// queried returns the records that the operator serves.
func queried(t *testing.T, s debug.Source, what replicas.Selection) replicas.Records {
	t.Helper()
	server := httptest.NewServer(debug.Handlers(s)["/debug/gc/records"])
	t.Cleanup(server.Close)
	all, err := replicas.Find(t.Context(), replicas.Options{Config: &rest.Config{}, Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { replicas.Close(all) })
	return replicas.QueryRecords(t.Context(), all, what)
}

func namesOf(found replicas.Records) string {
	var names []string
	for _, e := range found.Entries {
		names = append(names, e.Object.Name)
	}
	return strings.Join(names, " ")
}

// What a restarted operator serves, and what its store has, is the same.
func TestRecords_AfterARestart(t *testing.T) {
	s, store := restarted(t)
	for claim, c := range map[string]struct {
		query record.Query
		want  string
	}{
		"all, none twice":          {record.Query{}, "child other grandchild"},
		"by UID":                   {record.Query{Object: record.ObjectQuery{UID: "u-child"}}, "child"},
		"by name":                  {record.Query{Object: record.ObjectQuery{Kind: "configmaps", Name: "other"}}, "other"},
		"by owner":                 {record.Query{Owner: record.ObjectQuery{UID: "u-root"}}, "child"},
		"by cascade, across it":    {record.Query{Root: "u-root"}, "child grandchild"},
		"by another cascade":       {record.Query{Root: "u-elsewhere"}, "other"},
		"by reason":                {record.Query{Reason: "ownersabsent"}, "child other grandchild"},
		"by another reason":        {record.Query{Reason: "KeptByPolicy"}, ""},
		"what policies would have": {record.Query{Would: true}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			what := replicas.Selection{Query: c.query}
			served := queried(t, s, what)
			if got := namesOf(served); got != c.want || len(served.Unreachable) != 0 {
				t.Errorf("the operator serves %q, want %q: %v", got, c.want, served.Unreachable)
			}
			direct, err := history.FromStore(t.Context(), store, "store", what)
			if got := namesOf(direct); got != c.want || err != nil {
				t.Errorf("the store has %q, want %q: %v", got, c.want, err)
			}
			if !served.Since.Equal(start) || !direct.Since.Equal(start) {
				t.Errorf("they begin at %s and %s", served.Since, direct.Since)
			}
		})
	}
}

func TestChain_ContinuesAcrossARestart(t *testing.T) {
	s, _ := restarted(t)
	found := queried(t, s, replicas.Selection{Query: record.Query{Object: record.ObjectQuery{UID: "u-grandchild"}}})
	if len(found.Entries) != 1 {
		t.Fatalf("found %q", namesOf(found))
	}
	e := found.Entries[0]
	want := "ConfigMap shop/grandchild: deleted (Background), since ConfigMap shop/child is absent, since ConfigMap shop/root is absent"
	if diff := cmp.Diff(want, e.String()); diff != "" || e.Root != "u-root" {
		t.Errorf("the root is %s\n%s", e.Root, diff)
	}
}

// Chains that were looked up are redacted as those in memory are.
func TestRecords_UsersSeeOnlyWhatTheyMayGet(t *testing.T) {
	s, _ := restarted(t)
	except := func(name string) {
		s.ReadAccess = func(*http.Request) debug.ReadAccess { return func(o record.Object) bool { return o.Name != name } }
	}
	except("root")
	found := queried(t, s, replicas.Selection{Query: record.Query{Object: record.ObjectQuery{UID: "u-grandchild"}}})
	if len(found.Entries) != 1 || len(found.Entries[0].Chain) != 1 || found.Entries[0].Root != "" {
		t.Errorf("the root is shown: %+v", found.Entries)
	}
	for _, query := range []record.Query{{Root: "u-root"}, {Owner: record.ObjectQuery{UID: "u-root"}}, {Owner: record.ObjectQuery{Name: "root"}}} {
		if found := queried(t, s, replicas.Selection{Query: query}); len(found.Entries) != 0 {
			t.Errorf("%+v selects by what is redacted: %s", query, namesOf(found))
		}
	}
	except("child")
	if found := queried(t, s, replicas.Selection{}); namesOf(found) != "other grandchild" {
		t.Errorf("found %q", namesOf(found))
	}
}

func TestRecords_ManyPages(t *testing.T) {
	var entries []record.Entry
	for i := range 45_000 {
		e := deleted(fmt.Sprint(i), "root", time.Duration(i/3)*time.Millisecond) // three at a time
		entries = append(entries, e)
	}
	store := storeOf(t, entries...)
	s := debug.Source{
		Records: func(types.UID) []record.Entry { return entries[44_999:] }, ReadAccess: debug.AllowAll, RecordsSince: func() time.Time { return start },
		Stored: recordlog.Reader{Archive: store}.Entries,
	}
	found := queried(t, s, replicas.Selection{})
	if len(found.Entries) != len(entries) || found.Older {
		t.Fatalf("%d records, want %d", len(found.Entries), len(entries))
	}
	for i, e := range found.Entries {
		if i > 0 && e.Time.Before(found.Entries[i-1].Time) {
			t.Fatalf("record %d is out of order", i)
		}
	}
	if found := queried(t, s, replicas.Selection{Limit: 2}); len(found.Entries) != 2 || !found.Older || found.Entries[1].Object.Name != "44999" {
		t.Errorf("the newest are %q", namesOf(found))
	}
	period := replicas.Selection{Since: start.Add(time.Millisecond), Before: start.Add(2 * time.Millisecond)}
	if found := queried(t, s, period); namesOf(found) != "3 4 5" {
		t.Errorf("in the period are %q", namesOf(found))
	}
}

// A store that can't be read must not look like one without records.
func TestRecords_UnreadableStoreIsReported(t *testing.T) {
	s, _ := restarted(t)
	s.Stored = func(context.Context, types.UID, time.Time, time.Time, func(record.Entry) bool) error {
		return errors.New("disk is on fire")
	}
	found := queried(t, s, replicas.Selection{})
	if namesOf(found) != "grandchild" || len(found.Unreachable) != 1 || !strings.Contains(found.Unreachable[0].Reason, "disk is on fire") {
		t.Errorf("found %q, %v", namesOf(found), found.Unreachable)
	}
}

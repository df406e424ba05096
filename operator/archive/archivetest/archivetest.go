// Package archivetest has the tests that every store of an archive passes: what was put can be
// read back, in order, until it expires, also after a crash, and nothing that was damaged is
// returned.
package archivetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// A Place is where one archive is. The functions fail the test on errors.
type Place struct {
	// Location is what a child process opens.
	Location string

	// Env is what a child process needs to open it, as KEY=value.
	Env []string

	// Open opens it for writing. Who calls it closes the store.
	Open func(t *testing.T) archive.Store

	// Reader opens it for reading, while it is not open for writing.
	Reader func(t *testing.T) archive.Reader

	// Corrupt flips a bit in the middle of what is stored of these bytes, which occur there,
	// while it is not open.
	Corrupt func(t *testing.T, stored []byte)
}

// Run runs the tests, each with a new place.
func Run(t *testing.T, newPlace func(t *testing.T) Place) {
	for name, test := range map[string]func(*testing.T, Place){
		"Put_CanBeReadBack":                putCanBeReadBack,
		"Put_LeavesWhatIsThere":            putLeavesWhatIsThere,
		"Put_RefusesWhatIsInvalid":         putRefusesWhatIsInvalid,
		"Put_StoresEqualBodiesOnce":        putStoresEqualBodiesOnce,
		"Put_IsDurableAfterKill":           putIsDurableAfterKill,
		"Headers_AreSelectedByEachField":   headersAreSelectedByEachField,
		"Headers_ComeNewestFirstUntilStop": headersComeNewestFirstUntilStop,
		"Headers_EndWithTheContext":        headersEndWithTheContext,
		"Records_ComeOldestFirstUntilStop": recordsComeOldestFirstUntilStop,
		"Expire_ByTime":                    expireByTime,
		"Expire_BySize":                    expireBySize,
		"Expire_RecordsByAge":              expireRecordsByAge,
		"Remove_KeepsWhatOthersHave":       removeKeepsWhatOthersHave,
		"Remove_OfMany":                    removeOfMany,
		"Usage_CountsWhatIsStored":         usageCountsWhatIsStored,
		"Reader_CannotWrite":               readerSeesWhatWasPut,
		"Corrupt_BodyIsNotReturned":        corruptBodyIsNotReturned,
		"Corrupt_HeaderIsSkipped":          corruptHeaderIsSkipped,
		"Corrupt_RecordIsSkipped":          corruptRecordIsSkipped,
		"Concurrent_PutReadAndExpire":      concurrentPutReadAndExpire,
	} {
		t.Run(name, func(t *testing.T) { test(t, newPlace(t)) })
	}
}

// start is the time of the first entry.
var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// Entry returns a ConfigMap's entry, i seconds after the first. Each has content of its own.
func Entry(t testing.TB, i int) archive.Entry {
	t.Helper()
	return EntryOf(t, i, fmt.Sprintf("content %d", i), archive.Header{})
}

// EntryOf returns an entry with this content and the other fields of a header.
func EntryOf(t testing.TB, i int, content string, h archive.Header) archive.Entry {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"content": content}}}
	o.SetAPIVersion("v1")
	o.SetKind("ConfigMap")
	o.SetNamespace("shop")
	o.SetName(fmt.Sprintf("settings-%d", i))
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", i)))
	return EntryOfObject(t, i, o, h)
}

// EntryOfObject returns the entry of an object.
func EntryOfObject(t testing.TB, i int, o *unstructured.Unstructured, h archive.Header) archive.Entry {
	t.Helper()
	h.Time = start.Add(time.Duration(i) * time.Second)
	e, err := archive.Seal(o, h, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func entries(t *testing.T, n int) []archive.Entry {
	t.Helper()
	all := make([]archive.Entry, n)
	for i := range all {
		all[i] = Entry(t, i)
	}
	return all
}

func put(t *testing.T, s archive.Store, entries ...archive.Entry) {
	t.Helper()
	if err := s.Put(t.Context(), entries...); err != nil {
		t.Fatal(err)
	}
}

func closeStore(t *testing.T, r archive.Reader) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// headers returns what a query selects, at most limit.
func headers(t *testing.T, r archive.Reader, q archive.Query, limit int) ([]archive.Header, error) {
	t.Helper()
	var found []archive.Header
	err := r.Headers(t.Context(), q, func(h archive.Header) bool {
		found = append(found, h)
		return len(found) < limit
	})
	return found, err
}

const noLimit = 1 << 30

// wantEntries compares what a query selects, and the bodies, with entries from the newest on.
func wantEntries(t *testing.T, r archive.Reader, q archive.Query, want ...archive.Entry) {
	t.Helper()
	got, err := headers(t, r, q, noLimit)
	if err != nil {
		t.Fatal(err)
	}
	wantHeaders := make([]archive.Header, 0, len(want))
	for _, e := range want {
		wantHeaders = append(wantHeaders, e.Header)
	}
	if diff := cmp.Diff(wantHeaders, got, sameLength); diff != "" {
		t.Fatalf("headers (-want +got):\n%s", diff)
	}
	for _, e := range want {
		body, err := r.Body(t.Context(), e.Header)
		if err != nil {
			t.Fatal(err)
		}
		if string(body) != string(e.Body) {
			t.Errorf("body of %s differs", e.Object)
		}
	}
}

// sameLength treats an empty list as none.
var sameLength = cmp.FilterValues(
	func(a, b []archive.Header) bool { return len(a) == 0 && len(b) == 0 },
	cmp.Comparer(func(_, _ []archive.Header) bool { return true }))

func records(t *testing.T, r archive.Reader, uid types.UID, since, before time.Time) ([]archive.Record, error) {
	t.Helper()
	var found []archive.Record
	err := r.Records(t.Context(), uid, since, before, func(record archive.Record) bool {
		found = append(found, record)
		return true
	})
	return found, err
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// record returns the record of an object, i seconds after the first entry.
func record(i int, uid types.UID) archive.Record {
	return archive.Record{Time: start.Add(time.Duration(i) * time.Second), UID: uid, JSON: fmt.Appendf(nil, `{"record":%d}`, i)}
}

func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

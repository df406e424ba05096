package recordlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/recordlog"
	"github.com/gleaner-dev/gleaner/policies"
)

// source has a store in a folder, or none.
type source struct {
	mu    sync.Mutex
	store archive.Store
	err   error
}

func (s *source) get() (archive.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store, s.err
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func newSource(t *testing.T) *source {
	t.Helper()
	store, err := filestore.Open(t.TempDir(), filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &source{store: store}
}

// start runs a Log until the test ends or stop is called.
func start(t *testing.T, s *source) (log *recordlog.Log, stop func()) {
	t.Helper()
	log = recordlog.New(recordlog.Options{Store: s.get, Now: time.Now, Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return log, stop
}

func entry(i int) record.Entry {
	return record.Entry{
		Time:   time.Date(2026, 1, 2, 3, 4, 5, i, time.UTC),
		Object: record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint("o-", i), UID: types.UID(fmt.Sprint("uid-", i))},
		Reason: "OwnersAbsent", Action: record.Delete, Result: "Done",
	}
}

// withTranscript adds a transcript of some size to an entry.
func withTranscript(e record.Entry, bytes int) record.Entry {
	body := json.RawMessage(fmt.Sprintf("%q", strings.Repeat("x", bytes)))
	e.Evaluations = []record.Evaluation{{Policy: "p", Replayable: true, Exchanges: []policies.Exchange{{
		Request: hostabi.Request{State: body}, Verdict: hostabi.Verdict{Decision: hostabi.DecisionDelete},
	}}}}
	return e
}

// stored returns the stored records, from old to new.
func stored(t *testing.T, s *source) []record.Entry {
	t.Helper()
	var entries []record.Entry
	err := s.store.Records(t.Context(), "", time.Time{}, time.Time{}, func(r archive.Record) bool {
		var e record.Entry
		if err := json.Unmarshal(r.JSON, &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting until %s", what)
		}
	}
}

func TestRecords_CanBeReadBackAsTheyWereMade(t *testing.T) {
	s := newSource(t)
	log, stop := start(t, s)
	var want []record.Entry
	for i := range 2500 {
		e := entry(i)
		if i%100 == 0 {
			e = withTranscript(e, 1000)
		}
		want = append(want, e)
		log.Add(e)
	}
	stop()
	if diff := cmp.Diff(want, stored(t, s)); diff != "" {
		t.Error(diff)
	}
	if got := log.Stats(); got != (recordlog.Stats{Stored: 2500}) {
		t.Errorf("stats are %+v", got)
	}
}

func TestRecords_AreStoredOnceTheStoreIsBack(t *testing.T) {
	s := newSource(t)
	s.fail(errors.New("no such bucket"))
	log, _ := start(t, s)
	log.Add(entry(1))
	eventually(t, "an attempt has failed", func() bool { return log.Stats().Err != nil })
	log.Add(entry(2))
	s.fail(nil)
	eventually(t, "both are stored", func() bool { return log.Stats().Stored == 2 })
	if got := stored(t, s); len(got) != 2 || log.Stats().Err != nil || log.Stats().Lost != 0 {
		t.Errorf("stored are %+v, stats are %+v", got, log.Stats())
	}
}

func TestRecords_AreLostAndCounted_IfTooManyWait(t *testing.T) {
	s := newSource(t)
	s.fail(os.ErrPermission)
	log, stop := start(t, s)
	const sent = 30_000
	for i := range sent {
		log.Add(entry(i))
	}
	if got := log.Stats(); got.Lost == 0 || got.Lost+got.Waiting > sent {
		t.Errorf("stats are %+v", got)
	}
	stop() // does not wait for long
	if got := log.Stats(); got.Lost != sent || got.Waiting != 0 || got.Stored != 0 {
		t.Errorf("after the end, stats are %+v", got)
	}
}

func TestRecords_LoseTheirTranscriptsFirst(t *testing.T) {
	s := newSource(t)
	s.fail(os.ErrPermission)
	log, stop := start(t, s)
	for i := range 100 {
		log.Add(withTranscript(entry(i), 900<<10))
	}
	s.fail(nil)
	stop()
	entries := stored(t, s)
	dropped := slices.IndexFunc(entries, func(e record.Entry) bool { return e.ExchangesDropped })
	if len(entries) != 100 || dropped < 20 || dropped > 50 {
		t.Fatalf("%d are stored, of which the first without its transcript is at %d", len(entries), dropped)
	}
	if e := entries[dropped]; e.HasTranscript() || e.Evaluations[0].Replayable {
		t.Errorf("it says that it can be replayed: %+v", e.Evaluations[0])
	}
}

func TestRecord_ThatIsTooLargeIsStoredWithoutItsTranscript(t *testing.T) {
	s := newSource(t)
	log, stop := start(t, s)
	log.Add(withTranscript(entry(1), archive.MaxRecordBytes))
	stop()
	if got := stored(t, s); len(got) != 1 || got[0].HasTranscript() || !got[0].ExchangesDropped {
		t.Errorf("stored are %+v", got)
	}
}

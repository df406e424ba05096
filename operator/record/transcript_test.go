package record_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

// object parses an object as the operator does.
func object(t testing.TB, document string) hostabi.Object {
	t.Helper()
	var o hostabi.Object
	if err := json.Unmarshal([]byte(document), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// about returns a transcript of one round.
func about(o hostabi.Object) []policies.Exchange {
	return []policies.Exchange{{
		Request: hostabi.Request{APIVersion: hostabi.Version, Hook: hostabi.HookCollect, Object: o, Attempt: 1, Round: 1},
		Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan, Reason: "it is <data>"},
		Fuel:    812,
	}}
}

func evaluation(exchanges []policies.Exchange) record.Evaluation {
	a := record.Evaluation{Policy: "ClusterGCPolicy keep", Mode: "Enforce", Module: "ClusterPolicyModule keep", Decision: "Orphan", Rounds: len(exchanges)}
	a.SetExchanges(exchanges, false)
	return a
}

func withTranscript(name string, exchanges []policies.Exchange) record.Entry {
	e := deleted(name)
	e.Evaluations = []record.Evaluation{evaluation(exchanges)}
	return e
}

// A request in a record is identical, byte for byte, to what the module received: its
// fuel depends on the bytes.
func TestExchanges_SurviveJSONByteForByte(t *testing.T) {
	body := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"x \u003c y < z & é","n":1.50,"l":[]}}`)
	want := about(body)
	want[0].Request.Policy.Settings = json.RawMessage(`{"a":"<b>"}`)
	want[0].Request.State = json.RawMessage(`["<",1]`)
	want[0].Request.Results = map[string]hostabi.Result{"x": {Object: &body}, "y": {Error: &hostabi.ResultError{Reason: hostabi.ErrorNotFound, Message: "no <such>"}}}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(withTranscript("a", want)); err != nil {
		t.Fatal(err)
	}
	var e record.Entry
	if err := json.Unmarshal([]byte(text.String()), &e); err != nil {
		t.Fatal(err)
	}
	original, err := hostabi.MarshalRequest(want[0].Request)
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := hostabi.MarshalRequest(e.Evaluations[0].Exchanges[0].Request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(original), string(recorded)); diff != "" {
		t.Error(diff)
	}
	if got := e.Evaluations[0]; !got.Replayable || got.Exchanges[0].Fuel != 812 || got.Exchanges[0].Verdict.Reason != "it is <data>" {
		t.Errorf("the rest is %+v", got)
	}
}

// Requests have no size limit of their own: the oldest transcripts are evicted, and the
// entries stay.
func TestStore_EvictsOldestTranscriptsAndKeepsEntries(t *testing.T) {
	const each = 4 << 20
	big := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", each)+`"}}`)
	s := record.NewStore(record.Limits{MaxEntries: 64})
	for i := range 20 {
		s.Add(withTranscript(fmt.Sprint(i), about(big)))
		s.Add(deleted(fmt.Sprint("plain", i))) // without a transcript
	}
	kept := 0
	for i, e := range s.Entries("") {
		talked := i%2 == 0
		isKept := talked && i >= 40-2*(record.DefaultMaxTranscriptBytes/each-1)
		if e.HasTranscript() != isKept || e.ExchangesDropped != (talked && !isKept) {
			t.Errorf("entry %d: transcript %t, dropped %t", i, e.HasTranscript(), e.ExchangesDropped)
		}
		if talked && (len(e.Evaluations) != 1 || e.Evaluations[0].Replayable != isKept || e.Evaluations[0].Decision != "Orphan") {
			t.Errorf("entry %d: %+v", i, e.Evaluations)
		}
		if isKept {
			kept++
		}
	}
	if kept != 7 {
		t.Errorf("%d transcripts are kept", kept)
	}
}

// An evicted entry frees the size of its transcripts.
func TestStore_EvictionFreesTranscriptSize(t *testing.T) {
	big := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", 7<<20)+`"}}`)
	s := record.NewStore(record.Limits{MaxEntries: 4})
	for i := range 12 {
		s.Add(withTranscript(fmt.Sprint(i), about(big)))
		for _, e := range s.Entries("") {
			if !e.HasTranscript() {
				t.Fatalf("after %d: the transcript of %s is dropped below the limit", i, e.Object)
			}
		}
	}
}

func TestStore_TranscriptBeyondTheLimitIsDropped(t *testing.T) {
	huge := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", record.DefaultMaxTranscriptBytes)+`"}}`)
	s := record.NewStore(record.Limits{MaxEntries: 4})
	s.Add(withTranscript("a", about(huge)))
	s.Add(withTranscript("b", about(object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","uid":"b","resourceVersion":"1"}}`))))
	got := s.Entries("")
	if !got[0].ExchangesDropped || got[0].HasTranscript() || !got[1].HasTranscript() {
		t.Errorf("kept: %t, %t", got[0].HasTranscript(), got[1].HasTranscript())
	}
}

// Entries that were returned keep their transcripts after eviction.
func TestStore_EvictionDoesNotModifyReturnedEntries(t *testing.T) {
	big := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", 20<<20)+`"}}`)
	s := record.NewStore(record.Limits{MaxEntries: 4})
	s.Add(withTranscript("a", about(big)))
	before := s.Entries("a")
	s.Add(withTranscript("b", about(big)))
	if !before[0].HasTranscript() || before[0].ExchangesDropped || !before[0].Evaluations[0].Replayable {
		t.Error("the returned entry has lost its transcript")
	}
	if after := s.Entries("a"); after[0].HasTranscript() || !after[0].ExchangesDropped {
		t.Error("the stored entry still has its transcript")
	}
}

// The same verdict on another request, for example at another time, is not a new decision.
func TestStore_SameVerdictWithOtherTranscriptIsARepeat(t *testing.T) {
	s := record.NewStore(record.Limits{MaxEntries: 4})
	first, second := withoutAction("a", "PolicyWaiting"), withoutAction("a", "PolicyWaiting")
	exchanges := about(object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"a","resourceVersion":"1"}}`))
	first.Evaluations = []record.Evaluation{evaluation(exchanges)}
	later := about(object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"a","resourceVersion":"2"}}`))
	second.Evaluations = []record.Evaluation{evaluation(later)}
	s.Add(first)
	if _, isNew := s.Add(second); isNew {
		t.Error("it is recorded twice")
	}
	second.Evaluations[0].Decision = "Delete"
	if _, isNew := s.Add(second); !isNew {
		t.Error("another verdict is not recorded")
	}
}

// The cost of transcripts. The plain entry is that of a decision without a module.
func BenchmarkAdd(b *testing.B) {
	body := object(b, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", 4<<10)+`"}}`)
	secret := object(b, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", 4<<10)+`"}}`)
	for name, exchanges := range map[string][]policies.Exchange{
		"without transcript": nil, "with transcript": about(body), "with a Secret": about(secret),
	} {
		b.Run(name, func(b *testing.B) {
			s := record.NewStore(record.Limits{MaxEntries: 4096})
			b.ReportAllocs()
			for i := range b.N {
				e := deleted([]string{"a", "b", "c", "d"}[i%4])
				a := record.Evaluation{Policy: "ClusterGCPolicy keep", Decision: "Orphan"}
				a.SetExchanges(exchanges, false)
				e.Evaluations = []record.Evaluation{a}
				s.Add(e)
			}
		})
	}
}

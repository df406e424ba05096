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

// object reads an object as the operator does.
func object(t testing.TB, document string) hostabi.Object {
	t.Helper()
	var o hostabi.Object
	if err := json.Unmarshal([]byte(document), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// about is a transcript of one round about an object.
func about(o hostabi.Object) []policies.Exchange {
	return []policies.Exchange{{
		Request: hostabi.Request{APIVersion: hostabi.Version, Hook: hostabi.HookCollect, Object: o, Attempt: 1, Round: 1},
		Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan, Reason: "it is <data>"},
		Fuel:    812,
	}}
}

func asked(exchanges []policies.Exchange) record.Asked {
	a := record.Asked{Policy: "ClusterGCPolicy keep", Mode: "Enforce", Module: "ClusterPolicyModule keep", Decision: "Orphan", Rounds: len(exchanges)}
	a.Transcribe(exchanges, false)
	return a
}

func conversed(name string, exchanges []policies.Exchange) record.Entry {
	e := deleted(name)
	e.Asked = []record.Asked{asked(exchanges)}
	return e
}

// What is read from a record is, to the byte, what the module was asked: fuel is
// spent on bytes.
func TestAQuestionComesOutOfARecordAsItWasAsked(t *testing.T) {
	body := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"x \u003c y < z & é","n":1.50,"l":[]}}`)
	want := about(body)
	want[0].Request.Policy.Settings = json.RawMessage(`{"a":"<b>"}`)
	want[0].Request.State = json.RawMessage(`["<",1]`)
	want[0].Request.Results = map[string]hostabi.Result{"x": {Object: &body}, "y": {Error: &hostabi.ResultError{Reason: hostabi.ErrorNotFound, Message: "no <such>"}}}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(conversed("a", want)); err != nil {
		t.Fatal(err)
	}
	var e record.Entry
	if err := json.Unmarshal([]byte(text.String()), &e); err != nil {
		t.Fatal(err)
	}
	asked, err := hostabi.MarshalRequest(want[0].Request)
	if err != nil {
		t.Fatal(err)
	}
	again, err := hostabi.MarshalRequest(e.Asked[0].Exchanges[0].Request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(asked), string(again)); diff != "" {
		t.Error(diff)
	}
	if got := e.Asked[0]; !got.Replayable || got.Exchanges[0].Fuel != 812 || got.Exchanges[0].Verdict.Reason != "it is <data>" {
		t.Errorf("the rest is %+v", got)
	}
}

// What a module was shown has no bound of its own: old transcripts make room for
// new ones, and the entries stay.
func TestTheOldestTranscriptsMakeRoomAndTheEntriesStay(t *testing.T) {
	const each = 4 << 20
	big := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", each)+`"}}`)
	s := record.NewStore(record.Bounds{Entries: 64})
	for i := range 20 {
		s.Add(conversed(fmt.Sprint(i), about(big)))
		s.Add(deleted(fmt.Sprint("plain", i))) // has none, and loses none
	}
	kept := 0
	for i, e := range s.Entries("") {
		talked := i%2 == 0
		isKept := talked && i >= 40-2*(record.DefaultTranscripts/each-1)
		if e.Converses() != isKept || e.ExchangesDropped != (talked && !isKept) {
			t.Errorf("entry %d: converses %t, dropped %t", i, e.Converses(), e.ExchangesDropped)
		}
		if talked && (len(e.Asked) != 1 || e.Asked[0].Replayable != isKept || e.Asked[0].Decision != "Orphan") {
			t.Errorf("entry %d says %+v", i, e.Asked)
		}
		if isKept {
			kept++
		}
	}
	if kept != 7 {
		t.Errorf("%d transcripts are kept", kept)
	}
}

// The room of an entry that is overwritten is free again.
func TestAnOverwrittenEntryGivesItsRoomBack(t *testing.T) {
	big := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", 7<<20)+`"}}`)
	s := record.NewStore(record.Bounds{Entries: 4})
	for i := range 12 {
		s.Add(conversed(fmt.Sprint(i), about(big)))
		for _, e := range s.Entries("") {
			if !e.Converses() {
				t.Fatalf("after %d: the transcript of %s is dropped though all have room", i, e.Object)
			}
		}
	}
}

func TestATranscriptThatHasNoRoomAtAllIsDroppedAtOnce(t *testing.T) {
	huge := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", record.DefaultTranscripts)+`"}}`)
	s := record.NewStore(record.Bounds{Entries: 4})
	s.Add(conversed("a", about(huge)))
	s.Add(conversed("b", about(object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","uid":"b","resourceVersion":"1"}}`))))
	got := s.Entries("")
	if !got[0].ExchangesDropped || got[0].Converses() || !got[1].Converses() {
		t.Errorf("kept: %t, %t", got[0].Converses(), got[1].Converses())
	}
}

// Readers have what they were given, whatever is dropped afterwards.
func TestDroppingChangesNothingThatWasHandedOut(t *testing.T) {
	big := object(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", 20<<20)+`"}}`)
	s := record.NewStore(record.Bounds{Entries: 4})
	s.Add(conversed("a", about(big)))
	before := s.Entries("a")
	s.Add(conversed("b", about(big)))
	if !before[0].Converses() || before[0].ExchangesDropped || !before[0].Asked[0].Replayable {
		t.Error("the entry that was handed out has lost its transcript")
	}
	if after := s.Entries("a"); after[0].Converses() || !after[0].ExchangesDropped {
		t.Error("the entry of the store has its transcript still")
	}
}

// The same answer to another question of the same kind, such as one at another
// time, is no new decision.
func TestAnotherTranscriptIsNoOtherDecision(t *testing.T) {
	s := record.NewStore(record.Bounds{Entries: 4})
	first, second := stuck("a", "WaitsByPolicy"), stuck("a", "WaitsByPolicy")
	exchanges := about(object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"a","resourceVersion":"1"}}`))
	first.Asked = []record.Asked{asked(exchanges)}
	later := about(object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"a","resourceVersion":"2"}}`))
	second.Asked = []record.Asked{asked(later)}
	s.Add(first)
	if _, isNew := s.Add(second); isNew {
		t.Error("it is told twice")
	}
	second.Asked[0].Decision = "Delete"
	if _, isNew := s.Add(second); !isNew {
		t.Error("another answer is not told")
	}
}

// What transcripts cost: the plain entry is what is added where no module is asked.
func BenchmarkAdd(b *testing.B) {
	body := object(b, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", 4<<10)+`"}}`)
	secret := object(b, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","uid":"u","resourceVersion":"7"},"data":{"a":"`+strings.Repeat("x", 4<<10)+`"}}`)
	for name, exchanges := range map[string][]policies.Exchange{
		"without transcript": nil, "with transcript": about(body), "with a Secret": about(secret),
	} {
		b.Run(name, func(b *testing.B) {
			s := record.NewStore(record.Bounds{Entries: 4096})
			b.ReportAllocs()
			for i := range b.N {
				e := deleted([]string{"a", "b", "c", "d"}[i%4])
				a := record.Asked{Policy: "ClusterGCPolicy keep", Decision: "Orphan"}
				a.Transcribe(exchanges, false)
				e.Asked = []record.Asked{a}
				s.Add(e)
			}
		})
	}
}

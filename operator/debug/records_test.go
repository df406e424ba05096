package debug

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

// entryWithExchanges returns an entry whose module has read an object and a list, and has
// requested an object that does not exist.
func entryWithExchanges() record.Entry {
	newObject := func(name string) hostabi.Object {
		return hostabi.Object{APIVersion: "v1", Kind: "ConfigMap", Metadata: hostabi.Metadata{Namespace: "ns", Name: name, UID: name}}
	}
	read, missing := newObject("read"), hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "missing"}
	a := record.Evaluation{Policy: "ClusterGCPolicy keep", Module: "ClusterPolicyModule keep", Rounds: 2}
	a.SetExchanges([]policies.Exchange{
		{
			Request: hostabi.Request{Hook: hostabi.HookCollect, Object: newObject("child"), Round: 1},
			Verdict: hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: []hostabi.Intent{{ID: "m", Get: &hostabi.GetIntent{Target: missing}}}},
		},
		{
			Request: hostabi.Request{Hook: hostabi.HookCollect, Object: newObject("child"), Round: 2, Results: map[string]hostabi.Result{
				"read": {Object: &read}, "list": {List: &hostabi.ListResult{Items: []hostabi.Object{newObject("listed")}}},
			}},
			Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan, Reason: "a < b"},
		},
	}, false)
	return record.Entry{
		Object: configMapNamed("child"), Reason: "KeptByPolicy", Action: record.DropReferences, Owners: []record.Owner{absentOwner("mother")},
		Evaluations: []record.Evaluation{a}, Intents: []record.Intent{{ID: "m", Summary: "get ConfigMap ns/missing", Object: configMapNamed("missing")}, {ID: "h", Summary: "GET https://a.example"}},
	}
}

// A module reads as its own service account: its exchanges are shown only to clients that
// may get all objects in them.
func TestExchanges_RequireAccessToAllObjects(t *testing.T) {
	for name, c := range map[string]struct {
		query  string
		sight  func(*http.Request) ReadAccess
		shown  bool
		hidden bool
	}{
		"not requested":                {"", AllowAll, false, false},
		"declined":                     {"?exchanges=false", AllowAll, false, false},
		"requested":                    {"?exchanges=true", AllowAll, true, false},
		"read object forbidden":        {"?exchanges=true", allExcept("read"), false, true},
		"listed object forbidden":      {"?exchanges=true", allExcept("listed"), false, true},
		"requested object forbidden":   {"?exchanges=true", allExcept("missing"), false, true},
		"owner forbidden":              {"?exchanges=true", allExcept("mother"), false, true},
		"not requested, and forbidden": {"", allExcept("read"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := source()
			s.ReadAccess, s.Records = c.sight, func(types.UID) []record.Entry { return []record.Entry{entryWithExchanges()} }
			var got struct{ Items []record.Entry }
			decode(t, get(t, s, "/debug/gc/records"+c.query), &got)
			e := got.Items[0]
			if e.HasTranscript() != c.shown || e.ExchangesWithheld != c.hidden || !e.Evaluations[0].Replayable {
				t.Errorf("shown %t, hidden %t, replayable %t", e.HasTranscript(), e.ExchangesWithheld, e.Evaluations[0].Replayable)
			}
			if c.shown && e.Evaluations[0].Exchanges[1].Verdict.Reason != "a < b" {
				t.Errorf("exchanges: %+v", e.Evaluations[0].Exchanges)
			}
		})
	}
}

func TestRecords_RedactIntents(t *testing.T) {
	s := source()
	s.ReadAccess, s.Records = allExcept("missing"), func(types.UID) []record.Entry { return []record.Entry{entryWithExchanges()} }
	var got struct{ Items []record.Entry }
	decode(t, get(t, s, "/debug/gc/records"), &got)
	if diff := cmp.Diff([]record.Intent{{ID: "h", Summary: "GET https://a.example"}}, got.Items[0].Intents); diff != "" {
		t.Error(diff)
	}
}

// Redaction for one client does not modify the stored entries.
func TestRedact_DoesNotModifyEntries(t *testing.T) {
	all := []record.Entry{entryWithExchanges()}
	s := source()
	s.Records = func(types.UID) []record.Entry { return all }
	s.ReadAccess = allExcept("read", "mother")
	get(t, s, "/debug/gc/records?exchanges=true")
	if diff := cmp.Diff([]record.Entry{entryWithExchanges()}, all); diff != "" {
		t.Error(diff)
	}
}

func TestRecords_LimitReturnsTheNewest(t *testing.T) {
	s := source()
	s.ReadAccess = allExcept("c")
	s.Records = func(types.UID) []record.Entry {
		return []record.Entry{{Object: configMapNamed("a")}, {Object: configMapNamed("b")}, {Object: configMapNamed("c")}}
	}
	for query, want := range map[string][]string{"": {"a", "b"}, "?limit=1": {"b"}, "?limit=2": {"a", "b"}, "?limit=9": {"a", "b"}} {
		var got struct{ Items []record.Entry }
		decode(t, get(t, s, "/debug/gc/records"+query), &got)
		var names []string
		for _, e := range got.Items {
			names = append(names, e.Object.Name)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}

func TestRecords_SelectByName(t *testing.T) {
	s := source()
	s.Records = func(types.UID) []record.Entry {
		pod := record.Object{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "a", UID: "pod"}
		otherNamespace := record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "far", Name: "a", UID: "far"}
		return []record.Entry{{Object: configMapNamed("a")}, {Object: configMapNamed("b")}, {Object: pod}, {Object: otherNamespace}}
	}
	for query, want := range map[string][]types.UID{
		"":                                    {"a", "b", "pod", "far"},
		"?name=a&namespace=ns":                {"a", "pod"},
		"?name=a&namespace=ns&kind=ConfigMap": {"a"},
		"?kind=Pod":                           {"pod"},
		"?name=a":                             nil,
	} {
		var got RecordList
		decode(t, get(t, s, "/debug/gc/records"+query), &got)
		var uids []types.UID
		for _, e := range got.Items {
			uids = append(uids, e.Object.UID)
		}
		if diff := cmp.Diff(want, uids); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}

// Clients must be able to distinguish missing records from none.
func TestRecords_ReportSince(t *testing.T) {
	s, at := source(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.RecordsSince = func() time.Time { return at }
	var got RecordList
	decode(t, get(t, s, "/debug/gc/records"), &got)
	if got.Since == nil || !got.Since.Equal(at) {
		t.Errorf("since %v", got.Since)
	}
}

func TestRecords_RejectsInvalidQueries(t *testing.T) {
	for query, want := range map[string]string{
		"limit=0":       "invalid limit \"0\": use a number of records, at least 1\n",
		"would=perhaps": "invalid would \"perhaps\": use would=true or would=false\n",
		"since=soon":    "invalid since \"soon\": use RFC 3339, such as 2026-01-02T03:04:05Z\n",
		"before=1h":     "invalid before \"1h\": use RFC 3339, such as 2026-01-02T03:04:05Z\n",
		"limit=many":    "invalid limit \"many\": use a number of records, at least 1\n",
		"exchanges=all": "invalid exchanges \"all\": use exchanges=true or exchanges=false\n",
	} {
		w := get(t, source(), "/debug/gc/records?"+query)
		if diff := cmp.Diff(want, w.Body.String()); diff != "" || w.Code != http.StatusBadRequest {
			t.Errorf("%d\n%s", w.Code, diff)
		}
	}
}

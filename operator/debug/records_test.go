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

// conversation is an entry whose module has read an object and a list, and has
// asked for one that is not there.
func conversation() record.Entry {
	shown := func(name string) hostabi.Object {
		return hostabi.Object{APIVersion: "v1", Kind: "ConfigMap", Metadata: hostabi.Metadata{Namespace: "ns", Name: name, UID: name}}
	}
	read, missing := shown("read"), hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "missing"}
	a := record.Asked{Policy: "ClusterGCPolicy keep", Module: "ClusterPolicyModule keep", Rounds: 2}
	a.Transcribe([]policies.Exchange{
		{
			Request: hostabi.Request{Hook: hostabi.HookCollect, Object: shown("child"), Round: 1},
			Verdict: hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: []hostabi.Intent{{ID: "m", Get: &hostabi.GetIntent{Target: missing}}}},
		},
		{
			Request: hostabi.Request{Hook: hostabi.HookCollect, Object: shown("child"), Round: 2, Results: map[string]hostabi.Result{
				"read": {Object: &read}, "list": {List: &hostabi.ListResult{Items: []hostabi.Object{shown("listed")}}},
			}},
			Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan, Reason: "a < b"},
		},
	}, false)
	return record.Entry{
		Object: named("child"), Reason: "KeptByPolicy", Action: record.DropReferences, Owners: []record.Owner{lost("mother")},
		Asked: []record.Asked{a}, Intents: []record.Intent{{ID: "m", What: "get ConfigMap ns/missing", Object: named("missing")}, {ID: "h", What: "GET https://a.example"}},
	}
}

// A module reads as its own service account: what it was shown is shown only to
// those who may get all of it.
func TestTranscriptsAreShownToWhoMaySeeAllThatIsInThem(t *testing.T) {
	for name, c := range map[string]struct {
		query  string
		sight  func(*http.Request) Sight
		shown  bool
		hidden bool
	}{
		"not asked for":                {"", Everything, false, false},
		"refused":                      {"?exchanges=false", Everything, false, false},
		"asked for":                    {"?exchanges=true", Everything, true, false},
		"not what was read":            {"?exchanges=true", except("read"), false, true},
		"not what was listed":          {"?exchanges=true", except("listed"), false, true},
		"not what it asked for":        {"?exchanges=true", except("missing"), false, true},
		"not an owner":                 {"?exchanges=true", except("mother"), false, true},
		"not asked for, and forbidden": {"", except("read"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := source()
			s.Sight, s.Records = c.sight, func(types.UID) []record.Entry { return []record.Entry{conversation()} }
			var got struct{ Items []record.Entry }
			decode(t, get(t, s, "/debug/gc/records"+c.query), &got)
			e := got.Items[0]
			if e.Converses() != c.shown || e.ExchangesHidden != c.hidden || !e.Asked[0].Replayable {
				t.Errorf("shown %t, hidden %t, replayable %t", e.Converses(), e.ExchangesHidden, e.Asked[0].Replayable)
			}
			if c.shown && e.Asked[0].Exchanges[1].Verdict.Reason != "a < b" {
				t.Errorf("the transcript is %+v", e.Asked[0].Exchanges)
			}
		})
	}
}

func TestAnIntentIsNotNamedToWhoMayNotSeeItsObject(t *testing.T) {
	s := source()
	s.Sight, s.Records = except("missing"), func(types.UID) []record.Entry { return []record.Entry{conversation()} }
	var got struct{ Items []record.Entry }
	decode(t, get(t, s, "/debug/gc/records"), &got)
	if diff := cmp.Diff([]record.Intent{{ID: "h", What: "GET https://a.example"}}, got.Items[0].Intents); diff != "" {
		t.Error(diff)
	}
}

// The store's own entries are not changed by what one client may not see.
func TestHidingChangesNothingForOthers(t *testing.T) {
	all := []record.Entry{conversation()}
	s := source()
	s.Records = func(types.UID) []record.Entry { return all }
	s.Sight = except("read", "mother")
	get(t, s, "/debug/gc/records?exchanges=true")
	if diff := cmp.Diff([]record.Entry{conversation()}, all); diff != "" {
		t.Error(diff)
	}
}

func TestTheNewestRecordsAreAskedForByNumber(t *testing.T) {
	s := source()
	s.Sight = except("c")
	s.Records = func(types.UID) []record.Entry {
		return []record.Entry{{Object: named("a")}, {Object: named("b")}, {Object: named("c")}}
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

func TestRecordsAreAskedForByName(t *testing.T) {
	s := source()
	s.Records = func(types.UID) []record.Entry {
		pod := record.Object{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "a", UID: "pod"}
		far := record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "far", Name: "a", UID: "far"}
		return []record.Entry{{Object: named("a")}, {Object: named("b")}, {Object: pod}, {Object: far}}
	}
	for query, want := range map[string][]types.UID{
		"":                                    {"a", "b", "pod", "far"},
		"?name=a&namespace=ns":                {"a", "pod"},
		"?name=a&namespace=ns&kind=ConfigMap": {"a"},
		"?kind=Pod":                           {"pod"},
		"?name=a":                             nil,
	} {
		var got Records
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

// Whoever finds nothing has to know whether there was nothing.
func TestRecordsSayHowFarBackTheyReach(t *testing.T) {
	s, at := source(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.Since = func() time.Time { return at }
	var got Records
	decode(t, get(t, s, "/debug/gc/records"), &got)
	if got.Since == nil || !got.Since.Equal(at) {
		t.Errorf("since %v", got.Since)
	}
}

func TestABadWishForRecordsIsToldWhatToAsk(t *testing.T) {
	for query, want := range map[string]string{
		"limit=0":       "limit is \"0\": use a number of entries, from 1\n",
		"namespace=ns":  "namespace is \"ns\": it goes with name=, leave it out or add that\n",
		"limit=many":    "limit is \"many\": use a number of entries, from 1\n",
		"exchanges=all": "exchanges is \"all\": use exchanges=true or exchanges=false\n",
	} {
		w := get(t, source(), "/debug/gc/records?"+query)
		if diff := cmp.Diff(want, w.Body.String()); diff != "" || w.Code != http.StatusBadRequest {
			t.Errorf("%d\n%s", w.Code, diff)
		}
	}
}

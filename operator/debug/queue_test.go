package debug

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/record"
)

func TestQueue_HasTheObjectsThatTheClientMayGet(t *testing.T) {
	s := source()
	s.Queue = func() Queue {
		return Queue{Length: 7, Oldest: []Queued{{Object: record.Object{Name: "mine"}}, {Object: record.Object{Name: "theirs"}, Reconciling: true}}}
	}
	s.ReadAccess = func(*http.Request) ReadAccess { return func(o record.Object) bool { return o.Name == "mine" } }
	var q Queue
	if err := json.Unmarshal(get(t, s, "/debug/gc/queue").Body.Bytes(), &q); err != nil {
		t.Fatal(err)
	}
	if q.Length != 7 || len(q.Oldest) != 1 || q.Oldest[0].Object.Name != "mine" {
		t.Errorf("%+v", q)
	}
}

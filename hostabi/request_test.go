package hostabi_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

var testTime = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestMarshalRequest_IncludesEmptyListsAndMaps(t *testing.T) {
	got, err := hostabi.MarshalRequest(hostabi.Request{Hook: hostabi.HookValidate, Time: testTime})
	want := `{"apiVersion":"abi.gleaner.dev/v1","hook":"validate","policy":{"name":"","settings":{}},"object":{},"owners":[],` +
		`"dependents":{"count":0,"byKind":[]},"time":"2026-01-02T12:00:00Z","namespaceTerminating":false,"attempt":0,"round":0,` +
		`"results":{},"withheld":[]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

func TestRequest_RoundTrips(t *testing.T) {
	yes := true
	body := json.RawMessage(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u","resourceVersion":"7"},"spec":{"x":"<&>"}}`)
	var pod hostabi.Object
	if err := json.Unmarshal(body, &pod); err != nil {
		t.Fatal(err)
	}
	reference := hostabi.Reference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "o", Controller: &yes}
	want := hostabi.Request{
		APIVersion:           hostabi.Version,
		Hook:                 hostabi.HookFinalize,
		Policy:               hostabi.Policy{Name: "p", Namespace: "n", Settings: json.RawMessage(`{"a":1}`)},
		Object:               pod,
		Owners:               []hostabi.Owner{{Reference: reference, Status: hostabi.OwnerAbsent}},
		Dependents:           hostabi.Dependents{Count: 1, ByKind: []hostabi.KindCount{{Group: "", Kind: "Secret", Count: 1}}},
		RequestedPropagation: hostabi.RequestedForeground,
		UserInfo:             &hostabi.UserInfo{Username: "u", Groups: []string{"g"}},
		Retention:            &hostabi.Retention{Policy: "r", Namespace: "n", Limit: "MaxAge"},
		Image: &hostabi.Image{
			ID: "i", Names: []string{"docker.io/library/web:1"}, Labels: map[string]string{"a": "b"}, SizeBytes: 1 << 40, FirstSeen: testTime, LastUsed: &testTime,
			Workloads: []hostabi.Workload{{APIVersion: "batch/v1", Kind: "CronJob", Namespace: "n", Name: "c"}},
		},
		OwnersAbsentSince: &testTime, Time: testTime,
		NamespaceTerminating: true, Attempt: 2, Round: 3, IdempotencyKey: "k", State: json.RawMessage(`[1]`),
		Results: map[string]hostabi.Result{
			"a": {Object: &pod},
			"b": {List: &hostabi.ListResult{Items: []hostabi.Object{pod}, Continue: "c"}},
			"c": {HTTP: &hostabi.HTTPResult{Status: 200, Headers: map[string]string{"A": "b"}, BodyBase64: []byte{0xff}, Truncated: true}},
			"d": {Error: &hostabi.ResultError{Reason: hostabi.ErrorConflict, Message: "m"}},
		},
		Withheld: []string{"object"},
	}
	data, err := hostabi.MarshalRequest(want)
	if err != nil {
		t.Fatal(err)
	}
	var got hostabi.Request
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestMarshalRequest_RejectsLargeRequest(t *testing.T) {
	settings := json.RawMessage(`"` + strings.Repeat("x", hostabi.MaxRequestBytes) + `"`)
	if _, err := hostabi.MarshalRequest(hostabi.Request{Policy: hostabi.Policy{Settings: settings}}); err == nil {
		t.Error("a request above the limit is marshaled")
	}
}

func TestObject_RoundTrips(t *testing.T) {
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","uid":"u","resourceVersion":"1",` +
		`"creationTimestamp":"2026-01-02T12:00:00Z","labels":{"a":"b"},"managedFields":[{"manager":"kubectl"}]},"spec":{"replicas":3}}`
	var o hostabi.Object
	if err := json.Unmarshal([]byte(deployment), &o); err != nil {
		t.Fatal(err)
	}
	meta := hostabi.Metadata{Name: "d", UID: "u", ResourceVersion: "1", CreationTimestamp: &testTime, Labels: map[string]string{"a": "b"}}
	if want := (hostabi.Object{APIVersion: "apps/v1", Kind: "Deployment", Metadata: meta, Body: json.RawMessage(deployment)}); !reflect.DeepEqual(o, want) {
		t.Errorf("got  %+v\nwant %+v", o, want)
	}
	if data, err := json.Marshal(o); err != nil || string(data) != deployment {
		t.Errorf("marshaled to %s, %v", data, err)
	}
	var spec struct{ Spec struct{ Replicas int } }
	if err := o.Decode(&spec); err != nil || spec.Spec.Replicas != 3 {
		t.Errorf("decoded as %+v, %v", spec, err)
	}
	if !o.Is("apps", "Deployment") || o.Is("", "Deployment") || o.Is("apps", "ReplicaSet") {
		t.Error("Is does not match")
	}
}

func TestObject_MarshalsFieldsWithoutBody(t *testing.T) {
	o := hostabi.Object{APIVersion: "v1", Kind: "Pod", Metadata: hostabi.Metadata{Name: "p", UID: "u", ResourceVersion: "1"}}
	const want = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u","resourceVersion":"1"}}`
	if data, err := json.Marshal(o); err != nil || string(data) != want {
		t.Errorf("marshaled to %s, %v", data, err)
	}
}

func TestRequest_DecodesSettingsAndState(t *testing.T) {
	type mine struct{ Keep string }
	r := hostabi.Request{Policy: hostabi.Policy{Settings: json.RawMessage(`{"keep":"1h"}`)}, State: json.RawMessage(`{"keep":"2h"}`)}
	var settings, state mine
	if err := r.DecodeSettings(&settings); err != nil || settings.Keep != "1h" {
		t.Errorf("settings: %+v, %v", settings, err)
	}
	if ok, err := r.DecodeState(&state); err != nil || !ok || state.Keep != "2h" {
		t.Errorf("state: %+v, %t, %v", state, ok, err)
	}
	if err := (hostabi.Request{}).DecodeSettings(&settings); err != nil {
		t.Errorf("no settings: %v", err)
	}
	if ok, err := (hostabi.Request{}).DecodeState(&state); ok || err != nil {
		t.Errorf("no state: %t, %v", ok, err)
	}
	if err := (hostabi.Request{Policy: hostabi.Policy{Settings: json.RawMessage(`{"kepe":"1h"}`)}}).DecodeSettings(&settings); err == nil {
		t.Error("an unknown setting is accepted")
	}
}

package main

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

// claimed is a request about a claim.
func claimed(settings string) gleaner.Request {
	r := gleanertest.Request(gleaner.Collect)
	r.Object.Kind = claim
	r.Policy.Settings = json.RawMessage(settings)
	return r
}

// The schema of the settings, for editors: UPDATE_SCHEMA=1 go test writes it.
func TestSettings_AreDescribed(t *testing.T) { gleanertest.CheckSettingsSchema(t, settings{}) }

func TestCollect(t *testing.T) {
	for name, c := range map[string]struct {
		request func() gleaner.Request
		want    gleaner.Verdict
	}{
		"a claim goes": {func() gleaner.Request { return claimed(`{}`) }, gleaner.Verdict{Decision: gleaner.Delete}},
		"a claim with the label stays": {func() gleaner.Request {
			r := claimed(`{}`)
			r.Object.Metadata.Labels = map[string]string{"keep": "true"}
			return r
		}, gleaner.Verdict{Decision: gleaner.Orphan, Reason: "it has keep=true"}},
		"a claim waits first": {func() gleaner.Request { return claimed(`{"wait":"1h"}`) },
			gleaner.Verdict{Decision: gleaner.Wait, After: gleaner.DurationOf(time.Hour), State: json.RawMessage(`{"waited":"1h"}`)}},
		"and then goes": {func() gleaner.Request {
			r := claimed(`{"wait":"1h"}`)
			r.State = json.RawMessage(`{"waited":"1h"}`)
			return r
		}, gleaner.Verdict{Decision: gleaner.Delete}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gleanertest.Call(collect, c.request())
			if err != nil || !reflect.DeepEqual(got.Verdict, c.want) {
				t.Errorf("got %+v, %v; want %+v", got.Verdict, err, c.want)
			}
		})
	}
}

func TestAnUnreadConfigMapIsNoAbsentOne(t *testing.T) {
	r := claimed(`{"unless":"hold"}`)
	for reason, want := range map[gleaner.ErrorReason]gleaner.Decision{
		"": gleaner.Wait, gleaner.ErrorNotFound: gleaner.Delete, gleaner.ErrorForbidden: gleaner.Wait,
	} {
		result := gleaner.Result{Object: &gleaner.Object{APIVersion: "v1", Kind: "ConfigMap", Metadata: gleaner.Metadata{Name: "hold", UID: "h"}}}
		if reason != "" {
			result = gleaner.Result{Error: &gleaner.ResultError{Reason: reason, Message: "oh"}}
		}
		r.Results = map[string]gleaner.Result{"hold": result}
		got, err := gleanertest.Call(collect, r)
		if err != nil || got.Verdict.Decision != want {
			t.Errorf("with reason %q: %+v, %v; want %s", reason, got.Verdict, err, want)
		}
	}
}

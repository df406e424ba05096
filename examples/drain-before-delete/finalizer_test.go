package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

const twoStages = `{"users":{"apiVersion":"apps/v1","kind":"Deployment"},"label":"uses","stageLabel":"stage","stages":["front","back"]}`

// asked is a question about a ConfigMap called orders, with two stages.
func asked() gleaner.Request {
	r := gleanertest.Request(gleaner.Finalize)
	r.Object.Metadata.Name = "orders"
	r.Policy.Settings = json.RawMessage(twoStages)
	return r
}

// cluster has Deployments, which go at once when they are deleted unless they are
// among those that stay a while.
type cluster struct {
	gleanertest.FakeCluster
	stay    map[string]bool
	deleted []string
}

func newCluster(stages map[string]string) *cluster {
	c := &cluster{stay: map[string]bool{}}
	for name, stage := range stages {
		o := gleanertest.Object("apps/v1", "Deployment", "shop", name)
		o.Metadata.Labels = map[string]string{"uses": "orders", "stage": stage}
		c.Add(o)
	}
	return c
}

// answer knows selectors as far as this module uses them.
func (c *cluster) answer(intent gleaner.Intent) gleaner.Result {
	switch {
	case intent.List != nil:
		all := *intent.List
		all.Limit = 0 // it counts what is selected
		chosen := &gleaner.ListResult{Items: []gleaner.Object{}}
		for _, o := range c.Execute(gleaner.Intent{List: &all}).List.Items {
			if selected(o, intent.List.LabelSelector) && len(chosen.Items) < intent.List.Limit {
				chosen.Items = append(chosen.Items, o)
			}
		}
		return gleaner.Result{List: chosen}
	case intent.Delete != nil && intent.Delete.Propagation == gleaner.PropagationForeground:
		c.deleted = append(c.deleted, intent.Delete.Name)
		if c.stay[intent.Delete.Name] {
			return gleaner.Result{}
		}
	}
	return c.Execute(intent)
}

func selected(o gleaner.Object, selector string) bool {
	for _, term := range strings.Split(selector, ",") {
		key, value, _ := strings.Cut(term, "=")
		if o.Metadata.Labels[key] != value {
			return false
		}
	}
	return true
}

func TestUsersGoStageByStage(t *testing.T) {
	c := newCluster(map[string]string{"web": "front", "api": "back", "worker": "back", "cron": "other", "test": ""})
	got, err := gleanertest.Finalize(finalizer, asked(), c.answer)
	if err != nil || got.Verdict.Decision != gleaner.Done {
		t.Errorf("got %+v, %v", got.Verdict, err)
	}
	if want := []string{"web", "api", "worker", "cron", "test"}; !reflect.DeepEqual(c.deleted, want) {
		t.Errorf("deleted %q, want %q", c.deleted, want)
	}
}

func TestALaterStageWaitsForTheOneBefore(t *testing.T) {
	c := newCluster(map[string]string{"web": "front", "api": "back"})
	c.stay["web"] = true
	got, err := gleanertest.Finalize(finalizer, asked(), c.answer)
	if err != nil || got.Verdict.Decision != gleaner.Wait || got.Verdict.Reason != "stage front: Deployment web still exists" {
		t.Errorf("got %+v, %v", got.Verdict, err)
	}
	if want := []string{"web"}; !reflect.DeepEqual(c.deleted, want) {
		t.Errorf("deleted %q, want %q", c.deleted, want)
	}
	delete(c.stay, "web")
	got, err = gleanertest.Finalize(finalizer, got.Next, c.answer)
	if want := []string{"web", "web", "api"}; err != nil || got.Verdict.Decision != gleaner.Done || !reflect.DeepEqual(c.deleted, want) {
		t.Errorf("got %+v, %v; deleted %q", got.Verdict, err, c.deleted)
	}
}

func TestAUserThatIsGoingIsLeftToGo(t *testing.T) {
	c := newCluster(nil)
	o := gleanertest.Object("apps/v1", "Deployment", "shop", "web")
	o.Metadata.Labels = map[string]string{"uses": "orders"}
	o.Metadata.DeletionTimestamp = &time.Time{}
	c.Add(o)
	got, err := gleanertest.Finalize(finalizer, asked(), c.answer)
	if err != nil || got.Verdict.Decision != gleaner.Wait || len(c.deleted) != 0 {
		t.Errorf("got %+v, %v; deleted %q", got.Verdict, err, c.deleted)
	}
}

func TestWithoutUsersTheObjectGoes(t *testing.T) {
	c := newCluster(nil)
	c.Add(gleanertest.Object("apps/v1", "Deployment", "shop", "unrelated"))
	got, err := gleanertest.Finalize(finalizer, asked(), c.answer)
	if err != nil || got.Verdict.Decision != gleaner.Done || len(c.deleted) != 0 || len(c.Objects()) != 1 {
		t.Errorf("got %+v, %v; deleted %q", got.Verdict, err, c.deleted)
	}
}

func TestAListThatCanNotBeReadIsNoEmptyOne(t *testing.T) {
	for reason, want := range map[gleaner.ErrorReason]gleaner.Decision{
		gleaner.ErrorUnavailable: gleaner.Wait, gleaner.ErrorForbidden: gleaner.Fail, gleaner.ErrorNotGranted: gleaner.Fail,
	} {
		got, err := gleanertest.Finalize(finalizer, asked(), func(gleaner.Intent) gleaner.Result { return gleanertest.ErrorResult(reason, "oh") })
		if err != nil || got.Verdict.Decision != want {
			t.Errorf("%s: got %+v, %v; want %s", reason, got.Verdict, err, want)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for settings, want := range map[string]gleaner.Decision{
		twoStages: gleaner.Valid,
		`{"users":{"apiVersion":"v1","kind":"Pod"},"label":"uses"}`:                                                     gleaner.Valid,
		`{"users":{"apiVersion":"v1","kind":"Pod"},"label":"uses","stages":["a"]}`:                                      gleaner.Invalid,
		`{"users":{"apiVersion":"v1","kind":"Pod"},"label":"uses","stageLabel":"s","stages":["a,b"]}`:                   gleaner.Invalid,
		`{"users":{"apiVersion":"v1","kind":"Pod"},"label":"uses","stageLabel":"s","stages":["a","b","c","d","e","f"]}`: gleaner.Invalid,
		`{"users":{"apiVersion":"v1","kind":"Pod"},"label":"a=b"}`:                                                      gleaner.Invalid,
		`{"users":{"apiVersion":"v1","kind":"Pod"},"label":"uses","order":"x"}`:                                         gleaner.Invalid,
		`{}`: gleaner.Invalid,
	} {
		r := gleanertest.Request(gleaner.Validate)
		r.Policy.Settings = json.RawMessage(settings)
		got, err := gleanertest.Call(validate, r)
		if err != nil || got.Verdict.Decision != want {
			t.Errorf("%s: got %+v, %v; want %s", settings, got.Verdict, err, want)
		}
	}
}

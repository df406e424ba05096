package graceperiod

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/slots"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/webhook/webhooktest"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

func keysOf(t *testing.T, b byte) statekey.Keys {
	t.Helper()
	keys, err := statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{b}, statekey.MinBytes)})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// allowing admits writes of the state of objects.
type allowing struct{}

func (allowing) Admit(_ context.Context, w writer.Write) (writer.Admission, error) {
	if w.Effect != writer.State || w.Origin != writer.Webhooks {
		return writer.Admission{}, fmt.Errorf("%s %s", w.Origin, w.Effect)
	}
	return writer.Admission{Outcome: writer.Pass}, nil
}

func (allowing) Settle(context.Context, writer.Write, writer.Settlement) {}

// sent is what the webhook has done about a request: the value of the annotation that it has written in seconds, -1 for one
// that it has removed, or nil.
type sent struct {
	seconds  *int64
	warnings []string
}

// send has the webhook answer a request for an object with an annotation; "" means none.
func send(t *testing.T, annotation, options string, change func(*Annotator, *fake.FakeMetadataClient)) (to sent) {
	t.Helper()
	api := fake.NewSimpleMetadataClient(fake.NewTestScheme())
	keys := keysOf(t, 1)
	api.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		var body metav1.PartialObjectMetadata
		var raw struct {
			Metadata struct{ Annotations map[string]*string }
		}
		if err := errors.Join(json.Unmarshal(patch.GetPatch(), &body), json.Unmarshal(patch.GetPatch(), &raw)); err != nil {
			t.Error(err)
		}
		value, is := raw.Metadata.Annotations[objectstate.GracePeriodAnnotation]
		if where := fmt.Sprintf("%s %s/%s %s", patch.GetResource().Resource, patch.GetNamespace(), patch.GetName(), body.UID); !is || where != "deployments shop/d u1" {
			t.Errorf("patch of %s: %s", where, patch.GetPatch())
		}
		seconds := int64(-1)
		if value != nil {
			var status objectstate.Status
			if seconds, status = objectstate.ReadGracePeriod(&body, keys); status != objectstate.Valid {
				t.Errorf("status of the annotation: %v", status)
			}
		}
		to.seconds = &seconds
		return true, &body, nil
	})
	a := NewAnnotator(api, writer.Writer{Steps: []writer.Step{allowing{}}}, func() (statekey.Keys, error) { return keys, nil })
	if change != nil {
		change(a, api)
	}
	annotations := "{}"
	if annotation != "" {
		data, err := json.Marshal(map[string]string{objectstate.GracePeriodAnnotation: annotation})
		if err != nil {
			t.Fatal(err)
		}
		annotations = string(data)
	}
	response := webhooktest.Send(t, a.Handler(), Path, `{"request":{"uid":"r","operation":"DELETE",`+options+`,
		"kind":{"group":"apps","version":"v1","kind":"Deployment"},"resource":{"group":"apps","version":"v1","resource":"deployments"},
		"oldObject":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"shop","name":"d","uid":"u1","annotations":`+annotations+`}}}}`)
	if !response.Allowed {
		t.Error("the request is denied")
	}
	to.warnings = response.Warnings
	return to
}

func TestHandler_StoresTheGracePeriodOfTheRequest(t *testing.T) {
	sign := func(uid types.UID, seconds int64, keys statekey.Keys) string {
		text, err := objectstate.SignGracePeriod(&metav1.ObjectMeta{UID: uid}, seconds, keys)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	const none, ninety = `"options":{}`, `"options":{"gracePeriodSeconds":90}`
	own, other := keysOf(t, 1), keysOf(t, 2)
	removed := ptr.To[int64](-1)
	for claim, c := range map[string]struct {
		annotation, options string
		want                *int64
	}{
		"it has one":                           {"", ninety, ptr.To[int64](90)},
		"an earlier one was denied":            {sign("u1", 30, own), ninety, ptr.To[int64](90)},
		"an earlier one with another key":      {sign("u1", 90, other), ninety, ptr.To[int64](90)},
		"one that was copied":                  {sign("u2", 90, own), ninety, ptr.To[int64](90)},
		"one that users have written":          {`{"seconds":90}`, ninety, ptr.To[int64](90)},
		"the same, after the object changed":   {sign("u1", 90, own), ninety, nil},
		"it has none":                          {"", none, nil},
		"it has none, and an earlier one had":  {sign("u1", 30, own), none, removed},
		"it has none, and users have written":  {"x", none, removed},
		"without waiting for kubelets":         {"", `"options":{"gracePeriodSeconds":0}`, ptr.To[int64](1)},
		"less than none":                       {"", `"options":{"gracePeriodSeconds":-5}`, ptr.To[int64](1)},
		"a dry run, which has no side effects": {"", ninety + `,"dryRun":true`, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(sent{seconds: c.want}, send(t, c.annotation, c.options, nil), cmp.AllowUnexported(sent{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A request is not denied because its grace period is lost, but users are told.
func TestHandler_WarnsIfItCannotStore(t *testing.T) {
	for claim, c := range map[string]struct {
		options string
		change  func(*Annotator, *fake.FakeMetadataClient)
		message string
	}{
		"invalid options": {`"options":{"gracePeriodSeconds":"x"}`, nil, "decode options"},
		"no key": {`"options":{"gracePeriodSeconds":90}`, func(a *Annotator, _ *fake.FakeMetadataClient) {
			a.keys = func() (statekey.Keys, error) { return statekey.Keys{}, errors.New("the Secret can't be read") }
		}, "the Secret can't be read"},
		"the write fails": {`"options":{"gracePeriodSeconds":90}`, func(_ *Annotator, api *fake.FakeMetadataClient) {
			api.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no quorum") })
		}, "no quorum"},
		"writes are stopped": {`"options":{"gracePeriodSeconds":90}`, func(a *Annotator, _ *fake.FakeMetadataClient) { a.writer = writer.Writer{} }, "no step admits"},
		"others of the namespace are in progress": {`"options":{"gracePeriodSeconds":90}`, func(a *Annotator, _ *fake.FakeMetadataClient) {
			a.slots = slots.New(1, 0)
			if _, ok := a.slots.Acquire(t.Context(), "shop"); !ok {
				t.Error("no slot")
			}
		}, "too many requests"},
	} {
		t.Run(claim, func(t *testing.T) {
			got := send(t, "", c.options, c.change)
			if got.seconds != nil || len(got.warnings) != 1 || !strings.Contains(got.warnings[0], c.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

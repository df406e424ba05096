package graceperiod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/slots"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/webhook"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

const (
	// timeout limits storing a grace period. The API server waits a second longer.
	timeout = (webhookTimeout - 1) * time.Second

	// maxWrites is how many grace periods may be being stored in one replica, and maxSlotWait how long a request waits
	// for others of its namespace.
	maxWrites   = 20
	maxSlotWait = 500 * time.Millisecond

	// minSeconds is the shortest grace period that dependents inherit. Without one, kubelets would not be waited for:
	// who deletes an owner with --force does not ask for that.
	minSeconds = 1
)

// Annotator stores grace periods. Create it with NewAnnotator. Its methods may be called concurrently.
type Annotator struct {
	client metadata.Interface
	writer writer.Writer
	keys   func() (statekey.Keys, error)
	slots  *slots.Slots
}

// NewAnnotator returns an Annotator. The keys sign what it stores.
func NewAnnotator(client metadata.Interface, w writer.Writer, keys func() (statekey.Keys, error)) *Annotator {
	return &Annotator{client: client, writer: w, keys: keys, slots: slots.New(maxWrites, maxSlotWait)}
}

// Handler serves the webhook. It allows all requests: with a warning if the grace period can't be stored.
func (a *Annotator) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, from *http.Request) {
		webhook.ServeReview(w, from, func(admission *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			to := &admissionv1.AdmissionResponse{UID: admission.UID, Allowed: true}
			deletion, err := webhook.DeletionOf(admission)
			if err == nil && !deletion.DryRun {
				ctx, cancel := context.WithTimeout(from.Context(), timeout)
				defer cancel()
				err = a.store(ctx, schema.GroupVersionResource(admission.Resource), deletion)
			}
			if err != nil {
				to.Warnings = []string{fmt.Sprintf("Gleaner could not store the grace period of this request, so that dependents may not inherit it: %v", err)}
			}
			return to
		})
	})
}

// store stores the grace period of a request, or removes that of an earlier one, which was denied by others.
func (a *Annotator) store(ctx context.Context, resource schema.GroupVersionResource, d webhook.Deletion) error {
	if !objectstate.Supported(resource.Group) {
		return fmt.Errorf("objects of group %s can't have it", resource.Group)
	}
	keys, missing := a.keys()
	stored, status := objectstate.ReadGracePeriod(d.Object, keys)
	var value *string
	switch {
	case d.GracePeriodSeconds == nil && status == objectstate.Missing:
		return nil
	case d.GracePeriodSeconds == nil:
	case status == objectstate.Valid && stored == max(*d.GracePeriodSeconds, minSeconds):
		return nil // the API server calls the webhook again after the object has changed
	default:
		text, err := objectstate.SignGracePeriod(d.Object, max(*d.GracePeriodSeconds, minSeconds), keys)
		if err != nil {
			return errors.Join(err, missing)
		}
		value = &text
	}
	target := graph.ObjectOf(d.Kind, d.Object)
	release, ok := a.slots.Acquire(ctx, target.Namespace)
	if !ok {
		return errors.New("too many requests of this namespace have one")
	}
	defer release()
	_, err := a.writer.Do(ctx, writer.Write{
		Origin: writer.Webhooks, Target: target, Effect: writer.State, Cause: writer.Cause{Reason: "GracePeriodRequested"},
		Do: func(ctx context.Context) (act.Result, error) { return a.patch(ctx, resource, target, value) },
	})
	return err
}

// patch sets the annotation of an object; nil removes it.
func (a *Annotator) patch(ctx context.Context, resource schema.GroupVersionResource, o graph.Object, value *string) (act.Result, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.UID, "annotations": map[string]*string{objectstate.GracePeriodAnnotation: value},
	}})
	if err != nil {
		return act.Failed, err
	}
	if _, err := a.client.Resource(resource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return act.Failed, err
	}
	return act.Done, nil
}

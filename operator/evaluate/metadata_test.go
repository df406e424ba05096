package evaluate_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// countingReader counts reads of its object.
type countingReader struct {
	objectReader
	reads *int
}

func (r countingReader) Get(ctx context.Context, a policies.ServiceAccount, resource schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error) {
	*r.reads++
	return r.objectReader.Get(ctx, a, resource, ns, name)
}

// The decision that is being carried out is in the annotation that a watch has shown. What was
// shown of another state of the object does not count, and a signature is always needed.
func TestState_OfAnObjectWithAHoldIsNotReadIfItWasShown(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	keys, err := statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})
	if err != nil {
		t.Fatal(err)
	}
	facts := ownerless()
	facts.Object.HasState, facts.Object.Held, facts.Object.Terminating = true, true, true
	state := objectstate.New(facts.Object.UID, facts.Object.Owners, now)
	state.OwnersAbsentSince = time.Time{}
	state.Propagation = &objectstate.Propagation{Policy: "ClusterGCPolicy earlier", Decision: "Foreground", Requested: "Unspecified"}
	signed, err := state.Sign(keys)
	if err != nil {
		t.Fatal(err)
	}
	for claim, c := range map[string]struct {
		hook       hostabi.Hook
		annotation string
		shown      bool
		reads      int
		decision   hostabi.Decision
	}{
		"shown":                  {hostabi.HookPropagate, signed, true, 0, hostabi.DecisionForeground},
		"not shown":              {hostabi.HookPropagate, signed, false, 1, hostabi.DecisionForeground},
		"shown and not signed":   {hostabi.HookPropagate, state.String(), true, 0, hostabi.DecisionBackground},
		"shown, in another hook": {hostabi.HookCollect, signed, true, 1, hostabi.DecisionDelete},
	} {
		t.Run(claim, func(t *testing.T) {
			meta := &metav1.PartialObjectMetadata{}
			meta.UID, meta.ResourceVersion, meta.OwnerReferences = facts.Object.UID, facts.Object.ResourceVersion, facts.Object.Owners
			meta.DeletionTimestamp, meta.Annotations = &metav1.Time{Time: now}, map[string]string{objectstate.Annotation: c.annotation}
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID(meta.UID)
			o.SetResourceVersion(meta.ResourceVersion)
			o.SetOwnerReferences(meta.OwnerReferences)
			o.SetDeletionTimestamp(meta.DeletionTimestamp)
			o.SetAnnotations(meta.Annotations)
			reads := 0
			evaluator := &evaluate.Evaluator{
				Policies: func() *policies.Set { return policies.NewSet(nil) }, Default: builtin.Policy{}, Catalog: widgets,
				Reader: countingReader{objectReader{o}, &reads}, Now: func() time.Time { return now },
				StateKeys: func() (statekey.Keys, error) { return keys, nil },
				Metadata: func(asked graph.Object) (*metav1.PartialObjectMetadata, bool) {
					return meta, c.shown && asked.ResourceVersion == meta.ResourceVersion
				},
			}
			got, err := evaluator.Evaluate(t.Context(), evaluate.Input{Hook: c.hook, Facts: facts, RequestedPropagation: hostabi.RequestedUnspecified})
			if err != nil || got.Fault != nil {
				t.Fatal(err, got.Fault)
			}
			if reads != c.reads || got.Verdict.Decision != c.decision {
				t.Errorf("%d reads, want %d; decision %q, want %q", reads, c.reads, got.Verdict.Decision, c.decision)
			}
		})
	}
}

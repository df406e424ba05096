package preview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPreview_OfProposedPolicies(t *testing.T) {
	for claim, s := range map[string]struct {
		there, proposed string
		without, with   map[string]string
	}{
		"a new policy": {
			proposed: policy + `{collect: {decision: Orphan}}`,
			without:  map[string]string{"top": "Goes", "kept": "Goes", "goes": "Goes"},
			with:     map[string]string{"top": "Goes", "kept": "Stays", "goes": "Goes"}},
		"another mode of an existing policy": {
			there:    strings.Replace(policy, "Enforce", "Monitor", 1) + `{collect: {decision: Orphan}}`,
			proposed: policy + `{collect: {decision: Orphan}}`,
			without:  map[string]string{"top": "Goes", "kept": "Goes", "goes": "Goes"},
			with:     map[string]string{"top": "Goes", "kept": "Stays", "goes": "Goes"}},
		"a policy with its module": {
			proposed: byLabelModule,
			without:  map[string]string{"top": "Goes", "kept": "Goes", "goes": "Goes"},
			with:     map[string]string{"top": "Goes", "kept": "Goes", "goes": "Stays"}},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newEnv(t)
			w.applyPolicies(s.there)
			w.create(`
				ConfigMap top
				Secret kept owners=top
				ConfigMap goes owners=top labels=keep:true`)
			if diff := cmp.Diff(s.without, w.outcomes(w.preview("top", background))); diff != "" {
				t.Errorf("preview without the proposal (-want +got):\n%s", diff)
			}
			w.propose(s.proposed)
			predicted := w.outcomes(w.preview("top", background))
			if diff := cmp.Diff(s.with, predicted); diff != "" {
				t.Fatalf("preview with the proposal (-want +got):\n%s", diff)
			}
			for _, o := range w.parseResources(s.there) {
				if err := w.client(o.GetKind()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			w.applyPolicies(s.proposed)
			w.delete("top", background)
			w.expectOutcomes(predicted)
		})
	}
}

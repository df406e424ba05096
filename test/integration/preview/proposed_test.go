package preview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatIsProposedIsTriedAndHappensOnceItIsApplied(t *testing.T) {
	for claim, s := range map[string]struct {
		there, proposed string
		without, with   map[string]string
	}{
		"a policy that there is not yet": {
			proposed: policy + `{collect: {decision: Orphan}}`,
			without:  map[string]string{"top": "Goes", "kept": "Goes", "goes": "Goes"},
			with:     map[string]string{"top": "Goes", "kept": "Stays", "goes": "Goes"}},
		"another mode of one that there is": {
			there:    strings.Replace(policy, "Enforce", "Monitor", 1) + `{collect: {decision: Orphan}}`,
			proposed: policy + `{collect: {decision: Orphan}}`,
			without:  map[string]string{"top": "Goes", "kept": "Goes", "goes": "Goes"},
			with:     map[string]string{"top": "Goes", "kept": "Stays", "goes": "Goes"}},
		"a policy with its module": {
			proposed: byLabel,
			without:  map[string]string{"top": "Goes", "kept": "Goes", "goes": "Goes"},
			with:     map[string]string{"top": "Goes", "kept": "Goes", "goes": "Stays"}},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			w.policies(s.there)
			w.make(`
				ConfigMap top
				Secret kept owners=top
				ConfigMap goes owners=top labels=keep:true`)
			if diff := cmp.Diff(s.without, w.outcomes(w.preview("top", background))); diff != "" {
				t.Errorf("without it (-want +got):\n%s", diff)
			}
			w.propose(s.proposed)
			said := w.outcomes(w.preview("top", background))
			if diff := cmp.Diff(s.with, said); diff != "" {
				t.Fatalf("with it (-want +got):\n%s", diff)
			}
			for _, o := range w.resources(s.there) {
				if err := w.client(o.GetKind()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			w.policies(s.proposed)
			w.delete("top", background)
			w.becomes(said)
		})
	}
}

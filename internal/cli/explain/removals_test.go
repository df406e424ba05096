package explain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// nodes reads a NodeRetention with the name of a node.
type nodes struct {
	client.Reader
	name     string
	removals []v1alpha1.NodeRemoval
	err      error
}

func (n nodes) Get(_ context.Context, key client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	if r, is := to.(*v1alpha1.NodeRetention); is && key.Name == n.name {
		r.Status.RecentRemovals = n.removals
	}
	return n.err
}

func TestExplain_OfANode_ShowsWhatRetentionRemovedFromIt(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	removed := []v1alpha1.NodeRemoval{{Type: v1alpha1.NodeRemovalImage, Name: "registry.example.com/web:1", ID: "sha256:1", Policy: "default", Reason: "MaxUnused", Time: &at}}
	for name, c := range map[string]struct {
		kind    string
		reader  nodes
		want    string
		unknown string
	}{
		"removed images are shown": {kind: "Node", reader: nodes{name: "worker-1", removals: removed}, want: "2026-05-01T12:00:00Z Image registry.example.com/web:1 default MaxUnused"},
		"without config/node":      {kind: "Node", reader: nodes{err: &meta.NoKindMatchError{}}},
		"an unreadable status":     {kind: "Node", reader: nodes{err: errors.New("timeout")}, unknown: "read what was removed from the node: timeout"},
		"another kind":             {kind: "Secret", reader: nodes{name: "worker-1", removals: removed}},
	} {
		t.Run(name, func(t *testing.T) {
			var f Data
			q := Query{Kind: schema.GroupVersionKind{Version: "v1", Kind: c.kind}, Name: "worker-1", Gleaner: c.reader}
			if err := q.removals(t.Context(), &f); (err != nil) != (c.unknown != "") || err != nil && err.Error() != c.unknown {
				t.Errorf("error %v, want %q", err, c.unknown)
			}
			var out strings.Builder
			if err := showExplanation(&out, printer.Palette{}, Explanation{Removals: f.Removals}); err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, c.want) || c.want == "" && strings.Contains(text, "registry.example.com") {
				t.Errorf("want %q in:\n%s", c.want, out.String())
			}
		})
	}
}

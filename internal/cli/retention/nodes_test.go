package retention

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
)

var (
	now    = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	later  = metav1.NewTime(now.Add(3 * time.Hour))
	before = metav1.NewTime(now.Add(-90 * time.Second))
)

var nodes = []v1alpha1.NodeRetention{
	{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: v1alpha1.NodeRetentionStatus{
		LastEvaluation: &before, ImageFilesystem: &v1alpha1.NodeFilesystem{UsedPercent: 71},
		Images: &v1alpha1.NodeImages{Total: 12, InUse: 4, Due: 1, Removed: 7}, Containers: &v1alpha1.NodeContainers{Exited: 3, Due: 1, Removed: 2},
		Policies: []v1alpha1.NodePolicy{{Name: "builds", Mode: v1alpha1.ModeMonitor}, {Name: "few", Mode: v1alpha1.ModeEnforce}},
		NextRemovals: []v1alpha1.NodeRemoval{
			{Type: v1alpha1.NodeRemovalImage, Name: "registry.example.com/web:1", ID: "sha256:a", Policy: "builds", Reason: "Usage"},
			{Type: v1alpha1.NodeRemovalContainer, Name: "shop/web/c", ID: "b", Policy: "few", Reason: "KeepLast"},
			{Type: v1alpha1.NodeRemovalImage, Name: "registry.example.com/web:2", ID: "sha256:c", Policy: "builds", Time: &later},
		},
	}},
	{ObjectMeta: metav1.ObjectMeta{Name: "node2"}, Status: v1alpha1.NodeRetentionStatus{Reason: v1alpha1.ReasonRuntimeFailed}},
}

func TestNodes_ShowsWhatGoesNowAndNext(t *testing.T) {
	for output, want := range map[string]string{
		"": `NODE    USED   IMAGES   IN USE   EXITED   REMOVED NOW   REMOVED   EVALUATED   REASON
node1   71%    12       4        3        2             9         90s ago     
node2          0        0        0        0             0                     RuntimeFailed

Removed now:
  NODE    TYPE        NAME                         POLICY             REASON
  node1   Image       registry.example.com/web:1   builds (Monitor)   Usage
  node1   Container   shop/web/c                   few                KeepLast

Removed next, if nothing changes:
  NODE    TYPE    NAME                         POLICY             IN
  node1   Image   registry.example.com/web:2   builds (Monitor)   3h
`,
		"name": "image/sha256:a\ncontainer/b\n",
	} {
		o := options{Flags: &kubectl.Flags{}}
		o.Output = output
		var out bytes.Buffer
		if err := o.writeNodes(&out, o.nodesDocument(nodes), now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(trimmed(want), trimmed(out.String())); diff != "" {
			t.Errorf("-o %q (-want +got):\n%s", output, diff)
		}
	}
}

// trimmed returns a text without spaces at the ends of lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for at := range lines {
		lines[at] = strings.TrimRight(lines[at], " ")
	}
	return strings.Join(lines, "\n")
}

func TestNodes_OfOnePolicy(t *testing.T) {
	o := options{Flags: &kubectl.Flags{}, policies: []string{"few"}}
	d := o.nodesDocument(nodes)
	if len(d.Removals) != 1 || d.Removals[0].ID != "b" || d.Removals[0].Mode != "Enforce" || len(d.Nodes) != 2 {
		t.Errorf("document: %+v", d)
	}
}

func TestNodes_FileIsRefused_WithWhatToDoInstead(t *testing.T) {
	o := options{Flags: &kubectl.Flags{}, nodes: true}
	o.Files = []string{"policy.yaml"}
	if err := o.runNodes(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "apply the policy with mode: Monitor") {
		t.Errorf("error: %v", err)
	}
}

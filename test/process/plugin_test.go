package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// plugin is the command as kubectl finds it: in a folder on the PATH, with the file names
// of kubectl plugins.
type plugin struct {
	*testing.T
	cluster *devcluster.Cluster
	folder  string
	ns      string
}

func newPlugin(t *testing.T) *plugin {
	t.Helper()
	cluster := devtest.Shared(t)
	p := &plugin{T: t, cluster: cluster, folder: t.TempDir(), ns: devtest.Namespace(t, cluster.RESTConfig())}
	for _, name := range []string{"kubectl-gleaner", "kubectl_complete-gleaner", "gleaner"} {
		if err := os.Symlink(gleaner.Path(t), filepath.Join(p.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", p.folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("KUBECONFIG", cluster.Kubeconfig())
	t.Setenv("KUBECACHEDIR", t.TempDir())
	p.createChain()
	return p
}

// createChain creates ConfigMaps: the first owns the second, which owns the third.
func (p *plugin) createChain() {
	p.Helper()
	maps := kubernetes.NewForConfigOrDie(p.cluster.RESTConfig()).CoreV1().ConfigMaps(p.ns)
	var refs []metav1.OwnerReference
	for _, name := range []string{"top", "middle", "leaf"} {
		o, err := maps.Create(p.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: refs}}, metav1.CreateOptions{})
		if err != nil {
			p.Fatal(err)
		}
		refs = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: o.UID, BlockOwnerDeletion: ptr.To(true)}}
	}
}

// run runs a command, and returns what it wrote and its exit code.
func (p *plugin) run(name string, args ...string) (out, errOut string, code int) {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return stdout.String(), stderr.String(), exit.ExitCode()
	} else if err != nil {
		p.Fatal(err)
	}
	return stdout.String(), stderr.String(), 0
}

func TestKubectl_RunsThePlugin(t *testing.T) {
	p := newPlugin(t)
	out, err := p.cluster.Kubectl(t.Context(), "gleaner", "graph", "cm/middle", "-n", p.ns)
	if err != nil {
		t.Fatal(err)
	}
	want := `OBJECT               BLOCKS
ConfigMap/top
└─ConfigMap/middle   yes
  └─ConfigMap/leaf   yes
`
	if out != want {
		t.Errorf("output:\n%s", out)
	}
}

func TestPreview_OfACluster(t *testing.T) {
	p := newPlugin(t)
	for _, args := range [][]string{
		{"configmap/top", "-n", p.ns}, {"cm", "top", "-n", p.ns}, {"configmaps/top", "-n", p.ns}, {"ConfigMap/top", "-n", p.ns},
	} {
		out, errOut, code := p.run("gleaner", append([]string{"preview", "delete", "-o", "json"}, args...)...)
		var document struct {
			Kind    string
			Summary map[string]any
			Unread  []string
		}
		if err := json.Unmarshal([]byte(out), &document); err != nil || code != 0 {
			t.Fatalf("%q: exit code %d: %v: %s", args, code, err, errOut)
		}
		if document.Kind != "DeletionPreview" || document.Summary["goes"] != 3.0 || len(document.Unread) != 0 {
			t.Errorf("%q: %s", args, out)
		}
	}
	if _, errOut, code := p.run("gleaner", "preview", "delete", "cm/top", "-n", p.ns, "--fail-over=2"); code != 3 {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

func TestCommands_ReportErrorsAsKubectlDoes(t *testing.T) {
	p := newPlugin(t)
	for words, want := range map[string]string{
		"graph cm/nothing":  `Error from server (NotFound): configmaps "nothing" not found`,
		"graph nosuch/top":  `the server doesn't have a resource type "nosuch"`,
		"graph --context=x": "context",
	} {
		_, errOut, code := p.run("gleaner", append(strings.Fields(words), "-n", p.ns)...)
		if code != 1 || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d: %s", words, code, errOut)
		}
	}
}

func TestCompletion_OfKindsAndNames(t *testing.T) {
	p := newPlugin(t)
	for _, c := range []struct {
		program string
		args    []string
		want    []string
	}{
		{"gleaner", []string{"__complete", "graph", "-n", p.ns, "cm/"}, []string{"cm/kube-root-ca.crt", "cm/leaf", "cm/middle", "cm/top"}},
		{"gleaner", []string{"__complete", "preview", "delete", "-n", p.ns, "configmaps", "mi"}, []string{"middle"}},
		{"gleaner", []string{"__complete", "graph", "configm"}, []string{"configmaps"}},
		{"gleaner", []string{"__complete", "graph", "-n", p.ns[:len(p.ns)-1]}, []string{p.ns}},
		{"kubectl_complete-gleaner", []string{"graph", "-n", p.ns, "cm/t"}, []string{"cm/top"}},
	} {
		out, errOut, code := p.run(c.program, c.args...)
		words := slices.DeleteFunc(strings.Fields(out), func(w string) bool { return strings.HasPrefix(w, ":") })
		if slices.Sort(words); code != 0 || !slices.Equal(words, c.want) {
			t.Errorf("%s %q: exit code %d, %q: %s", c.program, c.args, code, words, errOut)
		}
	}
}

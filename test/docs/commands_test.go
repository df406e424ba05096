package docs

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"

	// What the command is made of. Go keeps the results of tests, and can't see
	// that these depend on what another process builds.
	_ "github.com/gleaner-dev/gleaner/operator/loop"
	_ "github.com/gleaner-dev/gleaner/policies/rego"
)

// TestCommands runs what the README and the tutorials say, one document after the
// other: they share a control plane, and so each has to clean up after itself.
func TestCommands(t *testing.T) {
	if _, err := devcluster.Build(t.Context(), os.Stderr); err != nil { // takes minutes, the first time
		t.Fatal(err)
	}
	for _, name := range append([]string{"README.md"}, tutorials(t)...) {
		failed := t.Failed() // one that ended in the middle cleaned up nothing
		t.Run(name, func(t *testing.T) {
			d := readDocument(t, name)
			blocks, err := d.blocks()
			if err != nil {
				t.Fatal(err)
			}
			if len(blocks) == 0 {
				t.Fatal("it has no commands")
			}
			follow(t, name, blocks, failed)
		})
	}
	t.Run("docs/reference/metrics.md", metricsAreThoseOfThePage)
}

// metricsAreThoseOfThePage compares the page, which is written from the code, with
// what an operator serves that has had something to do.
func metricsAreThoseOfThePage(t *testing.T) {
	if development.process == nil {
		t.Skip("no document has started a cluster")
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + development.address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	found := 0
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) != 4 || words[1] != "TYPE" || !strings.HasPrefix(words[2], "gleaner_") {
			continue
		}
		found++
		if row := fmt.Sprintf("| `%s` | %s |", words[2], words[3]); !strings.Contains(string(page), row) {
			t.Errorf("there is no row %q", row)
		}
	}
	if found < 10 {
		t.Errorf("only %d metrics are served", found)
	}
}

// tutorials are the pages of docs/tutorials, in the order of their names.
func tutorials(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(root + "/docs/tutorials/*.md")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d tutorials are found: %v", len(files), err)
	}
	var names []string
	for _, file := range files {
		names = append(names, "docs/tutorials/"+filepath.Base(file))
	}
	slices.Sort(names)
	return names
}

// follow types a document's commands into a new shell, in a copy of the checkout.
// Whether it cleans up can't be told if one before it has failed.
func follow(t *testing.T, name string, blocks []block, failed bool) {
	t.Helper()
	tree := newTree(t, name)
	s := newSession(t, tree)
	starts := slices.ContainsFunc(blocks, func(b block) bool {
		return slices.ContainsFunc(b.commands, func(c command) bool { return isDev(c.text) })
	})
	if !starts {
		s.onCluster(t)
	}
	for _, b := range blocks {
		if b.runBy != nil {
			checkRunBy(t, name, b)
			continue
		}
		for _, c := range b.commands {
			at := fmt.Sprintf("%s:%d: %s", name, c.line, c.text)
			lines, err := s.follow(t, tree, c)
			switch missing, is := mismatch(c.want, lines); {
			case c.checked && is:
				t.Fatalf("%s\nis to print %q, and prints:\n%s", at, missing, strings.Join(lines, "\n"))
			case !c.checked && err != nil:
				t.Fatalf("%s\nfails with %v:\n%s", at, err, strings.Join(lines, "\n"))
			}
		}
		built(tree)
	}
	if !starts || failed {
		return
	}
	devtest.Eventually(t, patience, func() error {
		if left := remains(t); len(left) != 0 {
			return fmt.Errorf("it does not clean up: %q is left", left)
		}
		return nil
	})
}

// onCluster gives a document that starts no cluster one of its own, as people have
// it who come with theirs: with all of kube-controller-manager, and without Gleaner.
func (s *session) onCluster(t *testing.T) {
	t.Helper()
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	binaries, err := devcluster.Build(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(t, "export KUBECONFIG="+cluster.Kubeconfig()+" PATH="+filepath.Dir(binaries.Kubectl)+":$PATH"); err != nil {
		t.Fatal(err)
	}
}

// follow types a command. A control plane is started in a terminal of its own, and
// what it says is to be typed is typed.
func (s *session) follow(t *testing.T, tree string, c command) ([]string, error) {
	t.Helper()
	if !isDev(c.text) {
		return s.run(t, strings.ReplaceAll(c.text, example, development.address))
	}
	development.start(t, tree)
	if _, err := s.run(t, development.export); err != nil {
		return nil, err
	}
	return development.printed, nil
}

// remains names what a document has left behind, which is to be nothing.
func remains(t *testing.T) []string {
	t.Helper()
	list := func(arguments ...string) []string {
		out, err := development.kubectl(t, append([]string{"get", "-o", "name"}, arguments...)...)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.Fields(out)
	}
	left := append(list("gleaner", "-A"), list("all,configmaps,persistentvolumeclaims,rolebindings,serviceaccounts", "-n", "default")...)
	left = append(left, list("namespaces")...)
	return slices.DeleteFunc(left, func(name string) bool {
		return slices.Contains(always, name) || strings.HasPrefix(name, "namespace/kube-")
	})
}

// always are there.
var always = []string{"service/kubernetes", "configmap/kube-root-ca.crt", "serviceaccount/default", "namespace/default"}

// checkRunBy sees that somebody else runs what is not run here.
func checkRunBy(t *testing.T, name string, b block) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.runBy.file)))
	if err != nil {
		t.Errorf("%s:%d: %v", name, b.line, err)
		return
	}
	for _, text := range b.runBy.texts {
		if !strings.Contains(string(data), text) {
			t.Errorf("%s:%d: %s has no %q any more: who runs this now?", name, b.line, b.runBy.file, text)
		}
	}
}

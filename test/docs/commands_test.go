package docs

import (
	"bufio"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"

	// The sources of the command. Go caches the results of tests, and can't detect
	// that these depend on a binary that another process builds.
	_ "github.com/gleaner-dev/gleaner/operator/run"
	_ "github.com/gleaner-dev/gleaner/policies/rego"
)

// TestCommands runs the commands in the documents, in sequence. Most documents share a control
// plane, so each must clean up: the README and the tutorials by their own
// commands, and the others by their setting. With -short, only the README and the tutorials are run.
func TestCommands(t *testing.T) {
	if _, err := devcluster.Build(t.Context(), os.Stderr); err != nil { // takes minutes, the first time
		t.Fatal(err)
	}
	for _, name := range documents(t) {
		if testing.Short() && rank(name) == other {
			continue
		}
		blocks, err := readDocument(t, name).blocks()
		if err != nil {
			t.Error(err)
		}
		blocks = slices.DeleteFunc(blocks, func(b block) bool { return findException(name, b) >= 0 })
		if len(blocks) == 0 {
			continue
		}
		failed := t.Failed() // a failed one did not clean up
		t.Run(name, func(t *testing.T) { runDocument(t, name, blocks, failed) })
	}
	t.Run("docs/reference/metrics.md", testMetricsPage)
}

// testMetricsPage compares the page, which is generated from the code, with
// the metrics of an operator that has been in use.
func testMetricsPage(t *testing.T) {
	if sharedDev.process == nil {
		t.Skip("no document has started a cluster")
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + sharedDev.address + "/metrics")
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
			t.Errorf("row %q is missing", row)
		}
	}
	if found < 10 {
		t.Errorf("only %d metrics are served", found)
	}
}

// documents returns all pages of the tree: the README first, then the tutorials, then the
// others.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := listFiles()
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool {
		return !strings.HasSuffix(f, ".md") || strings.Contains(f, "testdata/") || slices.Contains(generated, f)
	})
	if len(files) < 40 {
		t.Fatalf("only %d documents are found", len(files))
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	return files
}

// The order in which documents are run.
const (
	readme = iota
	tutorial
	other
)

func rank(name string) int {
	switch {
	case name == "README.md":
		return readme
	case strings.HasPrefix(name, "docs/tutorials/"):
		return tutorial
	default:
		return other
	}
}

// generated matches the pages with usage lines of commands, which are not run. Tests of
// cmd/gleaner and cmd/gleaner-dev generate them.
var generated = []string{"docs/reference/commands.md", "docs/reference/commands-dev.md"}

// runDocument types a document's commands into a new shell, in a copy of the checkout.
// If an earlier document has failed, clean up is not checked.
func runDocument(t *testing.T, name string, blocks []block, failed bool) {
	t.Helper()
	tree := newTree(t, name)
	set := settings[name]
	t.Cleanup(func() { cleanUp(t, tree, set) })
	s := newSession(t, tree)
	s.replace = strings.NewReplacer(append(slices.Clone(set.replace), documentedAddress, "ADDRESS")...)
	s.prepare(t, set, blocks)
	for _, b := range blocks {
		for _, c := range b.commands {
			at := fmt.Sprintf("%s:%d: %s", name, c.line, c.text)
			lines, err := s.runCommand(t, c)
			switch missing, is := mismatch(c.want, lines); {
			case c.checked && is:
				t.Fatalf("%s\nwant output %q, got:\n%s", at, missing, strings.Join(lines, "\n"))
			case !c.checked && err != nil:
				t.Fatalf("%s\nfailed with %v:\n%s", at, err, strings.Join(lines, "\n"))
			}
		}
		recordBuild(tree)
	}
	s.mustRun(t, set.after)
	if set.own != nil || sharedDev.process == nil || failed {
		return
	}
	expectCleanedUp(t)
}

// prepare puts a session into the state in which a document's reader begins.
func (s *session) prepare(t *testing.T, set setting, blocks []block) {
	t.Helper()
	starts := slices.ContainsFunc(blocks, func(b block) bool {
		return slices.ContainsFunc(b.commands, func(c command) bool { return isDev(c.text) })
	})
	switch {
	case set.own != nil:
		s.useOwnCluster(t, *set.own)
	case !starts || set.before != "":
		s.useDevCluster(t)
	}
	s.mustRun(t, "export PATH="+filepath.Join(s.tree, "bin")+":$PATH; cd "+filepath.Join(s.tree, set.folder))
	s.mustRun(t, set.before)
}

// cleanUp cleans up after a document that has failed, so that it does not affect the
// next one.
func cleanUp(t *testing.T, tree string, set setting) {
	if !t.Failed() || set.own != nil || sharedDev.process == nil {
		return
	}
	for _, line := range strings.Split(set.after, "\n") {
		command := exec.Command("timeout", "30", "bash", "-c", sharedDev.export+"\ncd "+filepath.Join(tree, set.folder)+"\n"+line)
		_ = command.Run() // fails for objects that were not created
	}
}

// mustRun types a command that is not part of a document.
func (s *session) mustRun(t *testing.T, command string) {
	t.Helper()
	if lines, err := s.run(t, s.replacePlaceholders(command), true); command != "" && err != nil {
		t.Fatalf("%s\nfailed with %v:\n%s", command, err, strings.Join(lines, "\n"))
	}
}

// useOwnCluster starts a separate control plane for a document, as users have
// it who bring their own: with all controllers, and without Gleaner.
func (s *session) useOwnCluster(t *testing.T, options devcluster.Options) {
	t.Helper()
	cluster, err := devcluster.Start(t.Context(), options)
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
	s.mustRun(t, "export KUBECONFIG="+cluster.Kubeconfig()+" KUBECACHEDIR="+cluster.KubectlCache()+" PATH="+filepath.Dir(binaries.Kubectl)+":$PATH")
}

// useDevCluster types the command that "gleaner-dev dev" prints, and starts "gleaner-dev dev" on first use.
func (s *session) useDevCluster(t *testing.T) {
	t.Helper()
	if !exists(filepath.Join(s.tree, "bin/gleaner-dev")) {
		s.mustRun(t, "make -C "+s.tree+" build")
		recordBuild(s.tree)
	}
	sharedDev.start(t, s.tree)
	s.mustRun(t, sharedDev.export)
}

// runCommand types a command. One that runs until it is interrupted gets a terminal of
// its own.
func (s *session) runCommand(t *testing.T, c command) ([]string, error) {
	t.Helper()
	switch {
	case isDev(c.text):
		s.useDevCluster(t)
		return sharedDev.printed, nil
	case runsUntilInterrupted(c.text):
		return s.run(t, s.serve(withoutComment(c.text)), true)
	default:
		return s.run(t, s.replacePlaceholders(c.text), !c.checked)
	}
}

// replacePlaceholders replaces placeholders.
func (s *session) replacePlaceholders(text string) string {
	return strings.NewReplacer("ADDRESS", sharedDev.address, "TREE", s.tree).Replace(s.replace.Replace(text))
}

// serve runs a server until the session ends, and waits until it accepts connections.
func (s *session) serve(line string) string {
	host, port, _ := strings.Cut(servers[line], ":")
	return fmt.Sprintf("(cd %s && exec bash -c %q) >$TMPDIR/server.log 2>&1 & "+
		"until (exec 3<>/dev/tcp/%s/%s) 2>/dev/null; do kill -0 $! || { cat $TMPDIR/server.log; false; }; sleep 0.1; done", s.tree, line, host, port)
}

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
	"github.com/gleaner-dev/gleaner/devcluster/devtest"

	// What the command is made of. Go keeps the results of tests, and can't see
	// that these depend on what another process builds.
	_ "github.com/gleaner-dev/gleaner/operator/loop"
	_ "github.com/gleaner-dev/gleaner/policies/rego"
)

// TestCommands runs what the documents say, one after the other. Most share a control
// plane, and so each has to clean up after itself: the README and the tutorials by what
// they say, and the others by their setting.
func TestCommands(t *testing.T) {
	if _, err := devcluster.Build(t.Context(), os.Stderr); err != nil { // takes minutes, the first time
		t.Fatal(err)
	}
	for _, name := range documents(t) {
		blocks, err := readDocument(t, name).blocks()
		if err != nil {
			t.Error(err)
		}
		blocks = slices.DeleteFunc(blocks, func(b block) bool { return exceptionOf(name, b) >= 0 })
		if len(blocks) == 0 {
			continue
		}
		failed := t.Failed() // one that ended in the middle cleaned up nothing
		t.Run(name, func(t *testing.T) { follow(t, name, blocks, failed) })
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

// documents are all pages of the tree: the README first, then the tutorials, and the
// others after them.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := listFiles()
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool {
		return !strings.HasSuffix(f, ".md") || strings.Contains(f, "testdata/") || f == generated
	})
	if len(files) < 40 {
		t.Fatalf("only %d documents are found", len(files))
	}
	rank := func(f string) int {
		switch {
		case f == "README.md":
			return 0
		case strings.HasPrefix(f, "docs/tutorials/"):
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	return files
}

// generated shows how each command is called, which is no command itself. A test of
// cmd/gleaner writes it from the code.
const generated = "docs/reference/commands.md"

// follow types a document's commands into a new shell, in a copy of the checkout.
// Whether it cleans up can't be told if one before it has failed.
func follow(t *testing.T, name string, blocks []block, failed bool) {
	t.Helper()
	tree := newTree(t, name)
	set := settings[name]
	t.Cleanup(func() { tidy(t, tree, set) })
	s := newSession(t, tree)
	s.replace = strings.NewReplacer(append(slices.Clone(set.replace), example, "ADDRESS")...)
	s.enter(t, set, blocks)
	for _, b := range blocks {
		for _, c := range b.commands {
			at := fmt.Sprintf("%s:%d: %s", name, c.line, c.text)
			lines, err := s.follow(t, c)
			switch missing, is := mismatch(c.want, lines); {
			case c.checked && is:
				t.Fatalf("%s\nis to print %q, and prints:\n%s", at, missing, strings.Join(lines, "\n"))
			case !c.checked && err != nil:
				t.Fatalf("%s\nfails with %v:\n%s", at, err, strings.Join(lines, "\n"))
			}
		}
		built(tree)
	}
	s.must(t, set.after)
	if set.own != nil || development.process == nil || failed {
		return
	}
	devtest.Eventually(t, patience, func() error {
		if left := remains(t); len(left) != 0 {
			return fmt.Errorf("it does not clean up: %q is left", left)
		}
		return nil
	})
}

// enter has a session begin where a document's reader is when they come to it.
func (s *session) enter(t *testing.T, set setting, blocks []block) {
	t.Helper()
	starts := slices.ContainsFunc(blocks, func(b block) bool {
		return slices.ContainsFunc(b.commands, func(c command) bool { return isDev(c.text) })
	})
	switch {
	case set.own != nil:
		s.onCluster(t, *set.own)
	case !starts || set.before != "":
		s.dev(t)
	}
	s.must(t, "export PATH="+filepath.Join(s.tree, "bin")+":$PATH; cd "+filepath.Join(s.tree, set.folder))
	s.must(t, set.before)
}

// tidy cleans up after a document that has failed, whose session has ended: the next one
// is to be judged by what it says itself.
func tidy(t *testing.T, tree string, set setting) {
	if !t.Failed() || set.own != nil || development.process == nil {
		return
	}
	for _, line := range strings.Split(set.after, "\n") {
		command := exec.Command("timeout", "30", "bash", "-c", development.export+"\ncd "+filepath.Join(tree, set.folder)+"\n"+line)
		_ = command.Run() // what has not been made can't be deleted
	}
}

// must types a command that is not a document's own.
func (s *session) must(t *testing.T, command string) {
	t.Helper()
	if lines, err := s.run(t, s.fill(command), true); command != "" && err != nil {
		t.Fatalf("%s\nfails with %v:\n%s", command, err, strings.Join(lines, "\n"))
	}
}

// onCluster gives a document that starts no cluster one of its own, as people have
// it who come with theirs: with all of kube-controller-manager, and without Gleaner.
func (s *session) onCluster(t *testing.T, options devcluster.Options) {
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
	s.must(t, "export KUBECONFIG="+cluster.Kubeconfig()+" PATH="+filepath.Dir(binaries.Kubectl)+":$PATH")
}

// dev types what "gleaner dev" says is to be typed, and starts it if nobody has yet.
func (s *session) dev(t *testing.T) {
	t.Helper()
	if !exists(filepath.Join(s.tree, "bin/gleaner")) {
		s.must(t, "make -C "+s.tree+" build")
		built(s.tree)
	}
	development.start(t, s.tree)
	s.must(t, development.export)
}

// follow types a command. One that does not end by itself is typed into a terminal of
// its own.
func (s *session) follow(t *testing.T, c command) ([]string, error) {
	t.Helper()
	switch {
	case isDev(c.text):
		s.dev(t)
		return development.printed, nil
	case stays(c.text):
		return s.run(t, s.serve(withoutComment(c.text)), true)
	default:
		return s.run(t, s.fill(c.text), !c.checked)
	}
}

// fill puts in what a reader has to.
func (s *session) fill(text string) string {
	return strings.NewReplacer("ADDRESS", development.address, "TREE", s.tree).Replace(s.replace.Replace(text))
}

// serve runs a command until the session ends, and waits until it can be reached.
func (s *session) serve(line string) string {
	host, port, _ := strings.Cut(servers[line], ":")
	return fmt.Sprintf("(cd %s && exec bash -c %q) >$TMPDIR/server.log 2>&1 & "+
		"until (exec 3<>/dev/tcp/%s/%s) 2>/dev/null; do kill -0 $! || { cat $TMPDIR/server.log; false; }; sleep 0.1; done", s.tree, line, host, port)
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

package archive

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

// follow runs gleaner records --follow for the test's namespace until the test ends.
func (e *env) follow(g *operator) *program.Log {
	e.Helper()
	cmd := exec.Command(gleaner.Path(e.T), "records", "-n", e.Namespace, "--follow", "--endpoint="+g.endpoint, "--kubeconfig="+e.asUser())
	out := &program.Log{}
	cmd.Stdout = out
	p, err := program.Start(cmd)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := p.Stop(timeout); err != nil {
			e.Errorf("gleaner records --follow: %v: %s", err, p.Log.String())
		}
	})
	return out
}

// waitForLines waits until each name is in exactly one line of an output about an object that was deleted. Another one, AlreadyGone, is of
// a second attempt, before the watch has shown the first.
func (e *env) waitForLines(out *program.Log, names ...string) {
	e.Helper()
	devtest.Eventually(e, timeout, func() error {
		for _, name := range names {
			if n := linesWith(out.String(), "/"+name+": deleted (Background), since"); n != 1 {
				return fmt.Errorf("%d lines about %s:\n%s", n, name, out)
			}
		}
		return nil
	})
}

func linesWith(text string, parts ...string) (n int) {
	for line := range strings.Lines(text) {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			n++
		}
	}
	return n
}

// Records outlive the operator: those of before its restart are shown once, and what was decided then can be replayed, with an
// operator and without.
func TestRecords_AreFollowedAndReplayedAcrossARestart(t *testing.T) {
	e, location := newEnv(t, primary.start(t)), "file://"+t.TempDir()
	g := e.operate(t, location)
	before, after := e.labelled("owner-before", "none"), e.labelled("owner-after", "none")
	e.createMany("before", 1, before)
	e.createMany("after", 1, after)
	out := e.follow(g)
	e.Delete(before, metav1.DeletePropagationBackground)
	e.waitForLines(out, "before-0000")
	g.end()
	g.begin()
	g.waitUntilReady()
	e.Delete(after, metav1.DeletePropagationBackground)
	e.waitForLines(out, "before-0000", "after-0000")

	keep := filepath.Join(t.TempDir(), "keep.yaml")
	if err := os.WriteFile(keep, []byte(keepAll), 0o600); err != nil {
		t.Fatal(err)
	}
	replay := func(from string) string {
		text, code := e.run(t, "replay", "-f", keep, from)
		if code != 1 { // something is different
			t.Errorf("replay %s: exit code %d\n%s", from, code, text)
		}
		return text
	}
	for _, text := range []string{replay("--endpoint=" + g.endpoint), func() string { g.end(); return replay("--archive=" + location) }()} {
		for _, name := range []string{"before-0000", "after-0000"} {
			// Of a second attempt, before the watch has shown the first, there is another line.
			if all := linesWith(text, "/"+name+" "); all == 0 || linesWith(text, "/"+name+" ", "KeptByPolicy") != all {
				t.Errorf("no difference for %s:\n%s", name, text)
			}
		}
	}
}

const keepAll = `
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce
`

package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// The stories run in sequence on one control plane. A step is comments,
// a command after "$ ", or after "tty$ " for one with a terminal, and its output. It is
// repeated until the output matches: the operator needs time.
func TestStories(t *testing.T) {
	s := sharedTestbed(t)
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		ok := t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { s.runStory(t, path) })
		if !ok {
			t.Fatalf("later stories depend on %s; the operator's log:\n%s", path, s.output())
		}
	}
}

// step is one command of a story.
type step struct {
	comments string
	terminal bool
	command  string
	want     string
}

func (s *testbed) runStory(t *testing.T, path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, step := range parseSteps(string(data)) {
		got := s.runStep(t, step)
		prompt := "$ "
		if step.terminal {
			prompt = "tty$ "
		}
		fmt.Fprintf(&b, "%s%s%s\n----\n%s\n", step.comments, prompt, step.command, got)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// parseSteps parses a story. An output ends with an empty line before a comment or a
// prompt.
func parseSteps(text string) []step {
	var steps []step
	var now step
	output := false
	lines := strings.Split(strings.TrimRight(text, "\n")+"\n", "\n")
	for i, line := range lines {
		command, prompted := strings.CutPrefix(line, "$ ")
		terminal := strings.HasPrefix(line, "tty$ ")
		if terminal {
			command = strings.TrimPrefix(line, "tty$ ")
		}
		last := i+1 == len(lines)
		starts := !last && (strings.HasPrefix(lines[i+1], "#") || strings.HasPrefix(lines[i+1], "$ ") || strings.HasPrefix(lines[i+1], "tty$ "))
		switch {
		case output && line == "" && (starts || last):
			steps, now, output = append(steps, now), step{}, false
		case output:
			now.want += line + "\n"
		case strings.HasPrefix(line, "#"):
			now.comments += line + "\n"
		case prompted || terminal:
			now.command, now.terminal = command, terminal
		case line == "----":
			output = true
		}
	}
	return steps
}

// runStep runs a step. A read-only command is repeated until its output is as wanted; with
// -rewrite, until its output is stable.
func (s *testbed) runStep(t *testing.T, step step) (got string) {
	t.Helper()
	switch retry := strings.HasPrefix(step.command, "gleaner "); {
	case !retry:
		if got = s.run(t, step); !*rewrite && got != step.want {
			t.Fatalf("%s (-want +got):\n%s", step.command, cmp.Diff(step.want, got))
		}
		return got
	case *rewrite:
		before := ""
		devtest.Eventually(t, timeout, func() error {
			time.Sleep(2 * time.Second) // only with -rewrite
			before, got = got, s.run(t, step)
			if got != before {
				return errors.New("output differs each time")
			}
			return nil
		})
		return got
	}
	devtest.Eventually(t, timeout, func() error {
		got = s.run(t, step)
		if diff := cmp.Diff(step.want, got); diff != "" {
			return fmt.Errorf("%s (-want +got):\n%s", step.command, diff)
		}
		return nil
	})
	return got
}

// run runs a shell command, and returns its output without variable parts.
func (s *testbed) run(t *testing.T, step step) string {
	t.Helper()
	binaries, err := devcluster.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", step.command)
	cmd.Dir = "testdata"
	colourful := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NO_COLOR=") })
	cmd.Env = append(colourful, "KUBECONFIG="+s.cluster.Kubeconfig(), "HOME="+s.folder, "TERM=xterm-256color", "WORK="+s.folder,
		"ASK=--operator-namespace="+namespace+" --token-of=ops/asker",
		"PATH="+filepath.Dir(s.binary)+":"+filepath.Dir(binaries.Kubectl)+":"+os.Getenv("PATH"))
	var out bytes.Buffer
	if step.terminal {
		err = onTerminal(cmd, &out)
	} else {
		cmd.Stdout, cmd.Stderr = &out, &out
		err = cmd.Run()
	}
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		fmt.Fprintf(&out, "exit code %d\n", code)
	}
	return normalize(out.String())
}

func onTerminal(cmd *exec.Cmd, out *bytes.Buffer) error {
	terminal, err := pty.Start(cmd)
	if err != nil {
		return err
	}
	defer terminal.Close()
	_, _ = out.ReadFrom(terminal) // returns an error when the terminal is closed
	return cmd.Wait()
}

// replacements replace variable text.
var replacements = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`(\r\x1b\[K[^\r\n\x1b]*)*\r\x1b\[K`), ""}, // progress that a slow command shows, and erases
	{regexp.MustCompile(`\r\n`), "\n"},
	{regexp.MustCompile(`\x1b`), "ESC"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`gleaner-[0-9a-f]{6,10}-[0-9a-z]{5}`), "gleaner-POD"},
	{regexp.MustCompile(`("?resourceVersion"?: )"\d+"`), `${1}"VERSION"`},
	{regexp.MustCompile(`(durationNanoseconds|fuel)("?: )\d+`), "${1}${2}NUMBER"}, // fuel depends on the compiler
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`held: gleaner-system/gleaner\.dev by \S+`), "held: gleaner-system/gleaner.dev by HOLDER"},
	{regexp.MustCompile(`(ESC\[33m)\d+[dhms]([0-9dhms]*)ESC`), "${1}AGE" + "ESC"},
	{regexp.MustCompile(`(?m)( {3})\d+[dhms][0-9dhms]*( {3}|$)`), "${1}AGE${2}"},
	{regexp.MustCompile(`(\S) {3,}`), "${1}   "}, // the width of columns depends on their content
	{regexp.MustCompile(`(?m) +$`), ""},
}

func normalize(text string) string {
	for _, r := range replacements {
		text = r.what.ReplaceAllString(text, r.by)
	}
	return text
}

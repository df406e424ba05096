package ask

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

// The stories are told one after the other, on one control plane. A step is comments,
// a command after "$ ", or after "tty$ " for one on a terminal, and its output. It is
// tried until the output is that: operators take a moment.
func TestStories(t *testing.T) {
	s := staged(t)
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		told := t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { s.tell(t, path) })
		if !told {
			t.Fatalf("what comes after %s rests on it; the operator's log:\n%s", path, s.log)
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

func (s *stage) tell(t *testing.T, path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, step := range stepsOf(string(data)) {
		got := s.play(t, step)
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

// stepsOf takes a story apart. An output ends with an empty line before a comment or a
// prompt.
func stepsOf(text string) []step {
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

// play runs a step. What only asks is asked until the answer is as it is to be; when the
// story is rewritten, until it stays as it is.
func (s *stage) play(t *testing.T, step step) (got string) {
	t.Helper()
	switch asks := strings.HasPrefix(step.command, "gleaner "); {
	case !asks:
		if got = s.run(t, step); !*rewrite && got != step.want {
			t.Fatalf("%s (-want +got):\n%s", step.command, cmp.Diff(step.want, got))
		}
		return got
	case *rewrite:
		before := ""
		devtest.Eventually(t, patience, func() error {
			time.Sleep(2 * time.Second) // rewriting only
			before, got = got, s.run(t, step)
			if got != before {
				return errors.New("it is another each time")
			}
			return nil
		})
		return got
	}
	devtest.Eventually(t, patience, func() error {
		got = s.run(t, step)
		if diff := cmp.Diff(step.want, got); diff != "" {
			return fmt.Errorf("%s (-want +got):\n%s", step.command, diff)
		}
		return nil
	})
	return got
}

// run runs a command of a shell, and returns its output as it is the same each time.
func (s *stage) run(t *testing.T, step step) string {
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
		"PATH="+s.folder+":"+filepath.Dir(binaries.Kubectl)+":"+os.Getenv("PATH"))
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
	return steady(out.String())
}

func onTerminal(cmd *exec.Cmd, out *bytes.Buffer) error {
	terminal, err := pty.Start(cmd)
	if err != nil {
		return err
	}
	defer terminal.Close()
	_, _ = out.ReadFrom(terminal) // ends with an error when the terminal is gone
	return cmd.Wait()
}

// replacements put words for what is another each time.
var replacements = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\r\n`), "\n"},
	{regexp.MustCompile(`\x1b`), "ESC"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`gleaner-[0-9a-f]{6,10}-[0-9a-z]{5}`), "gleaner-POD"},
	{regexp.MustCompile(`("?resourceVersion"?: )"\d+"`), `${1}"VERSION"`},
	{regexp.MustCompile(`(durationNanoseconds|fuel)("?: )\d+`), "${1}${2}NUMBER"}, // fuel is another with each compiler
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`held: gleaner-system/gleaner\.dev by \S+`), "held: gleaner-system/gleaner.dev by HOLDER"},
	{regexp.MustCompile(`(ESC\[33m)\d+[dhms]([0-9dhms]*)ESC`), "${1}AGE" + "ESC"},
	{regexp.MustCompile(`(?m)( {3})\d+[dhms][0-9dhms]*( {3}|$)`), "${1}AGE${2}"},
	{regexp.MustCompile(`(\S) {3,}`), "${1}   "}, // columns are as wide as what is in them
	{regexp.MustCompile(`(?m) +$`), ""},
}

func steady(text string) string {
	for _, r := range replacements {
		text = r.what.ReplaceAllString(text, r.by)
	}
	return text
}

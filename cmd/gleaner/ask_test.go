package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/program"
)

// What the commands that ask write, piped and on a terminal. After a change run the
// test with -rewrite, then read the diff.
func TestFileCommands_Golden(t *testing.T) {
	t.Chdir("testdata/ask")
	t.Setenv("TERM", "xterm")
	t.Setenv("KUBECONFIG", "/nonexistent") // no cluster is to be asked
	datadriven.RunTest(t, "files.txt", func(t *testing.T, d *datadriven.TestData) string {
		run := map[string]func(*testing.T, []string) (string, int){"piped": piped, "terminal": onTerminal}[d.Cmd]
		if run == nil {
			t.Fatalf("%s: there is no command %s", d.Pos, d.Cmd)
		}
		out, code := run(t, strings.Fields(d.Input))
		if code != 0 {
			out += fmt.Sprintf("exit code %d\n", code)
		}
		return strings.ReplaceAll(out, "\x1b[", "^[")
	})
}

// invoke runs a command, and returns the exit code that it ends with.
func invoke(t *testing.T, name string, args []string, out, errOut io.Writer) int {
	t.Helper()
	cmd := rootCommandFor(name)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	return program.PrintError(errOut, name, cmd.ExecuteContext(t.Context()))
}

func piped(t *testing.T, args []string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	code := invoke(t, "gleaner", args, &out, &out)
	return out.String(), code
}

// onTerminal runs a command whose output is a terminal.
func onTerminal(t *testing.T, args []string) (string, int) {
	t.Helper()
	master, terminal, err := pty.Open()
	if err != nil {
		t.Skipf("there is no terminal to be had here: %v", err)
	}
	defer master.Close()
	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // it ends with an error when nobody has the terminal open
		read <- string(text)
	}()
	code := invoke(t, "gleaner", args, terminal, terminal)
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(progress.ReplaceAllString(<-read, ""), "\r\n", "\n"), code
}

// progress is what a command shows after two seconds, up to where it erases that: on a busy
// machine it may.
var progress = regexp.MustCompile("(\r\x1b\\[K[^\r\n\x1b]*)+\r\x1b\\[K")

// printHeld are what is asked of files: the rest of the page is of a cluster.
var shown = regexp.MustCompile("(?s)```console\n\\$ gleaner ([^\n]* -f shop\\.yaml[^\n]*)\n(.*?)```")

func TestDocumentation_ShowsActualOutput(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("testdata/ask")
	blocks := shown.FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("it shows nothing: it is not looked for as it is written")
	}
	for _, block := range blocks {
		out, _ := piped(t, strings.Fields(string(block[1])))
		if diff := cmp.Diff(string(block[2]), out); diff != "" {
			t.Errorf("gleaner %s (-documented +written):\n%s", block[1], diff)
		}
	}
}

func TestNoColor_IsRespected(t *testing.T) {
	t.Chdir("testdata/ask")
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	out, _ := onTerminal(t, []string{"preview", "delete", "deploy/web", "-f", "shop.yaml"})
	if !strings.Contains(out, "OUTCOME") || strings.Contains(out, "\x1b") {
		t.Errorf("it is coloured, or nothing: %q", out)
	}
}

func TestPlugin_UsageSaysKubectlGleaner(t *testing.T) {
	var out bytes.Buffer
	if code := invoke(t, "kubectl gleaner", []string{"preview", "delete", "--help"}, &out, &out); code != 0 {
		t.Fatalf("exit code %d: %s", code, &out)
	}
	if !strings.Contains(out.String(), "  kubectl gleaner preview delete KIND/NAME [flags]") {
		t.Errorf("the usage is\n%s", &out)
	}
	out.Reset()
	if code := invoke(t, "kubectl gleaner", []string{"graph", "a", "b", "c"}, &out, &out); code != exit.CodeUsage || !strings.HasPrefix(out.String(), "kubectl gleaner: ") {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

func TestCompletion_FlagValues(t *testing.T) {
	for line, want := range map[string]string{
		"preview delete --cascade ": "background foreground orphan",
		"graph -o ":                 "dot json mermaid svg wide yaml",
		"preview delete -o ":        "json name wide yaml",
	} {
		var out bytes.Buffer
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		if code := invoke(t, "gleaner", args, &out, io.Discard); code != 0 {
			t.Fatalf("%q: exit code %d", line, code)
		}
		words := strings.Fields(out.String())
		words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, ":") })
		slices.Sort(words)
		if got := strings.Join(words, " "); got != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
}

func TestFilename_DashIsStandardInput(t *testing.T) {
	file, err := os.Open("testdata/ask/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	was := os.Stdin
	os.Stdin = file
	defer func() { os.Stdin = was }()
	out, code := piped(t, []string{"graph", "deploy", "web", "-f", "-"})
	if code != 0 || !strings.Contains(out, "├─ReplicaSet/web-5d9") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

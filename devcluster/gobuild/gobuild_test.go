package gobuild

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// program is a module with two programs that share a package.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":        "module example.com/" + strings.ToLower(t.Name()) + "\n\ngo 1.26\n",
		"one/main.go":   "package main\n\nimport \"example.com/" + strings.ToLower(t.Name()) + "/both\"\n\nfunc main() { println(both.Word) }\n",
		"two/main.go":   "package main\n\nimport \"example.com/" + strings.ToLower(t.Name()) + "/both\"\n\nfunc main() { println(both.Word) }\n",
		"both/word.go":  "package both\n\nvar Word = \"" + dir + "\"\n", // in no build cache
		"wrong/main.go": "package main\n\nfunc main() { undeclared() }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOneBuildMakesSeveralPrograms(t *testing.T) {
	dir, out := program(t), t.TempDir()
	build := Build{Label: "test", Name: "both", Dir: dir, Packages: []string{"./one", "./two"}, Output: out + "/"}
	var progress bytes.Buffer
	if err := Run(t.Context(), build, &progress); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		said, err := exec.CommandContext(t.Context(), filepath.Join(out, name)).CombinedOutput()
		if err != nil || strings.TrimSpace(string(said)) != dir {
			t.Errorf("%s says %q: %v", name, said, err)
		}
	}
	if want := `(?s)^test: building both\n(.*\n)?test: built both in [0-9.ms]+\n$`; !regexp.MustCompile(want).MatchString(progress.String()) {
		t.Errorf("progress is %q", &progress)
	}
}

func TestOnlyPackagesOutsideOfTheCacheAreCounted(t *testing.T) {
	r := runner{Build: Build{Label: "test", Name: "one", Dir: program(t), Packages: []string{"./one"}}, progress: io.Discard, ticks: interval}
	r.Output = filepath.Join(t.TempDir(), "one")
	before, err := r.stale(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	module := "example.com/" + strings.ToLower(t.Name())
	if !before[module+"/one"] || !before[module+"/both"] {
		t.Errorf("the new packages are not counted: %v", before)
	}
	if err := r.compile(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if len(before) != 0 {
		t.Errorf("not printed by the build: %v", before)
	}
	after, err := r.stale(t.Context())
	if err != nil || len(after) != 0 {
		t.Errorf("still to compile after the build: %v, %v", after, err)
	}
}

func TestRun_ErrorContainsOutput(t *testing.T) {
	for path, want := range map[string]string{"./no/such/package": "no/such/package", "./wrong": "undefined: undeclared"} {
		build := Build{Label: "test", Name: "nothing", Dir: program(t), Packages: []string{path}, Output: t.TempDir() + "/"}
		err := Run(t.Context(), build, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestRun_ReportsProgress(t *testing.T) {
	var progress bytes.Buffer
	build := Build{Label: "test", Name: "both", Dir: program(t), Packages: []string{"./one"}, Output: t.TempDir() + "/"}
	r := runner{Build: build, progress: &progress, began: time.Now(), ticks: time.Millisecond}
	stale, err := r.stale(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.compile(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`test: reading source files \(`, `test: \d+%, .*\(`} {
		if !regexp.MustCompile(want).MatchString(progress.String()) {
			t.Errorf("no line is like %q: %s", want, &progress)
		}
	}
	if interval > 10*time.Second {
		t.Errorf("%s are too long", interval)
	}
}

func TestEveryProgramIsCompiledWithTheSameSettings(t *testing.T) {
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("CGO_ENABLED", "1")
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	env := Environment("GOOS=wasip1")
	for _, want := range []string{"GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off", "GOOS=wasip1"} {
		name, _, _ := strings.Cut(want, "=")
		last := ""
		for _, variable := range env {
			if strings.HasPrefix(variable, name+"=") {
				last = variable
			}
		}
		if last != want {
			t.Errorf("got %q, want %q", last, want)
		}
	}
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "GOGC=") && v != "GOGC=" }) {
		t.Error("GOGC is not set")
	}
	t.Setenv("GOGC", "50")
	if env := Environment(); env[len(env)-1] != "CGO_ENABLED=0" {
		t.Errorf("GOGC of the user was replaced: %v", env[len(env)-2:])
	}
}

func TestEnvironment_SetsGOGCIfMemorySuffices(t *testing.T) {
	for text, want := range map[string]uint64{
		"MemTotal:       24607732 kB\nMemAvailable:   2 kB\n": 2048,
		"MemTotal:       24607732 kB\n":                       0,
		"MemAvailable: many kB\n":                             0,
	} {
		if got, ok := availableIn(text); got != want || ok != (want > 0) {
			t.Errorf("%q: got %d, %t", text, got, ok)
		}
	}
	settings := strings.Join(gcSettings(), " ")
	if strings.Contains(settings, "GOGC=off") != strings.Contains(settings, "GOMEMLIMIT=") {
		t.Errorf("no bound: %s", settings)
	}
}

func TestTheEstimateGrowsWithThePackages(t *testing.T) {
	if got := estimate(1); got != "less than a minute" {
		t.Errorf("got %q", got)
	}
	if got := estimate(1_000_000); !strings.HasPrefix(got, "about ") || !strings.HasSuffix(got, " minutes") {
		t.Errorf("got %q", got)
	}
}

package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/format"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies/policytest"
	"github.com/gleaner-dev/gleaner/policies/rego"
)

// TestEachModulePassesItsOwnTests runs what a reader runs first.
func TestEachModulePassesItsOwnTests(t *testing.T) {
	for _, name := range goExamples {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"vet", "./..."}, {"test", "./..."}} {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir = folder(name)
				cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("go %s: %v\n%s", args[0], err, out)
				}
			}
		})
	}
}

func TestEachModuleAnswersItsCasesInTheSandbox(t *testing.T) {
	for _, name := range goExamples {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, asker(t, name), filepath.Join(folder(name), "cases.yaml"))
		})
	}
}

func TestEachModuleFitsIntoAConfigMap(t *testing.T) {
	for _, name := range goExamples {
		t.Run(name, func(t *testing.T) {
			m := build(t, name)
			t.Logf("%d KiB, %d KiB compressed", len(m.code)>>10, len(m.zipped)>>10)
			if len(m.zipped) >= maxConfigMap {
				t.Errorf("it has %d bytes compressed, and may have %d", len(m.zipped), maxConfigMap)
			}
		})
	}
}

// regoExamples are those with a module in Rego, and where it is once more, inline.
var regoExamples = map[string]string{"dns-finalizer": "deploy/module.yaml", "hello-policy": "resources.yaml"}

func TestEachPolicyPassesItsOwnTestsWhichReachAllOfIt(t *testing.T) {
	for name := range regoExamples {
		t.Run(name, func(t *testing.T) {
			report, err := rego.Test(t.Context(), []rego.File{read(t, name, "policy.rego"), read(t, name, "policy_test.rego")})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range report.Results {
				if r.Failed || r.Error != "" || r.Skipped {
					t.Errorf("%s:%d: %s: %s%s", r.File, r.Line, r.Name, r.Error, r.Output)
				}
			}
			for _, f := range report.Coverage {
				if len(f.Missed) != 0 {
					t.Errorf("%s: no test reaches lines %v", f.File, f.Missed)
				}
			}
			if len(report.Results) == 0 {
				t.Error("no test ran")
			}
		})
	}
}

func TestEachPolicyAnswersItsCasesInTheSandbox(t *testing.T) {
	for name := range regoExamples {
		t.Run(name, func(t *testing.T) {
			engine, err := rego.New(rego.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(engine.Close)
			module, err := engine.Load(t.Context(), []rego.File{read(t, name, "policy.rego")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(module.Close)
			policy, err := rego.NewPolicy(t.Context(), module, rego.Options{Name: name, Instances: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(policy.Close)
			policytest.Run(t, policy, filepath.Join(folder(name), "cases.yaml"))
		})
	}
}

func TestEachPolicyIsFormattedAndIsWhatIsApplied(t *testing.T) {
	for name, resources := range regoExamples {
		t.Run(name, func(t *testing.T) {
			for _, file := range []rego.File{read(t, name, "policy.rego"), read(t, name, "policy_test.rego")} {
				formatted, err := format.Source(file.Name, []byte(file.Text))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(formatted), file.Text); diff != "" {
					t.Errorf("%s (-formatted +got):\n%s", file.Name, diff)
				}
			}
			first, _, _ := strings.Cut(read(t, name, resources).Text, "\n---\n")
			var module v1alpha1.ClusterPolicyModule // a PolicyModule has the same spec
			if err := yaml.UnmarshalStrict([]byte(first), &module); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSpace(read(t, name, "policy.rego").Text), strings.TrimSpace(*module.Spec.Rego.Inline)); diff != "" {
				t.Errorf("%s (-policy.rego +inline):\n%s", resources, diff)
			}
		})
	}
}

func read(t *testing.T, name, file string) rego.File {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder(name), file))
	if err != nil {
		t.Fatal(err)
	}
	return rego.File{Name: file, Text: string(text)}
}

func TestEachExampleHasWhatTheOverviewSays(t *testing.T) {
	overview, err := os.ReadFile(filepath.Join(folder("."), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.IsDir() {
			continue
		}
		if _, isRego := regoExamples[name]; !isRego && !slices.Contains(goExamples, name) {
			t.Errorf("no test runs %s", name)
		}
		if !strings.Contains(string(overview), "| ["+name+"]("+name+") |") {
			t.Errorf("the overview lacks %s", name)
		}
		readme := read(t, name, "README.md").Text
		for _, section := range []string{"# " + name + "\n", "## Try it\n", "## What it doesn't do\n"} {
			if !strings.Contains(readme, section) {
				t.Errorf("the README of %s lacks %q", name, section)
			}
		}
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(readme, -1) {
			if _, err := os.Stat(filepath.Join(folder(name), link[1])); err != nil {
				t.Errorf("the README of %s: %v", name, err)
			}
		}
	}
}

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

// TestModules_PassTheirOwnTests runs the tests that a reader runs first.
func TestModules_PassTheirOwnTests(t *testing.T) {
	for _, name := range goExamples {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"vet", "./..."}, {"test", "./..."}} {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir = exampleFolder(name)
				cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("go %s: %v\n%s", args[0], err, out)
				}
			}
		})
	}
}

func TestModules_PassTheirCasesInTheSandbox(t *testing.T) {
	for _, name := range slices.Concat(goExamples, npmExamples) {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, compilePolicy(t, name), filepath.Join(exampleFolder(name), "cases.yaml"))
		})
	}
}

func TestModules_FitIntoAConfigMap(t *testing.T) {
	for _, name := range slices.Concat(goExamples, npmExamples) {
		t.Run(name, func(t *testing.T) {
			m := build(t, name)
			t.Logf("%d KiB, %d KiB compressed", len(m.code)>>10, len(m.zipped)>>10)
			if len(m.zipped) >= maxConfigMap {
				t.Errorf("compressed size is %d, limit %d", len(m.zipped), maxConfigMap)
			}
		})
	}
}

// regoExamples are the examples with a module in Rego, and the file that has it inline.
var regoExamples = map[string]string{"dns-finalizer": "deploy/module.yaml", "hello-policy": "resources.yaml"}

func TestPolicies_PassTheirOwnTests_WithFullCoverage(t *testing.T) {
	for name := range regoExamples {
		t.Run(name, func(t *testing.T) {
			report, err := rego.Test(t.Context(), rego.TestOptions{}, []rego.File{read(t, name, "policy.rego"), read(t, name, "policy_test.rego")})
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

func TestPolicies_PassTheirCasesInTheSandbox(t *testing.T) {
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
			policytest.Run(t, policy, filepath.Join(exampleFolder(name), "cases.yaml"))
		})
	}
}

func TestPolicies_AreFormattedAndMatchTheManifests(t *testing.T) {
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
	text, err := os.ReadFile(filepath.Join(exampleFolder(name), file))
	if err != nil {
		t.Fatal(err)
	}
	return rego.File{Name: file, Text: string(text)}
}

func TestExamples_MatchTheOverview(t *testing.T) {
	overview, err := os.ReadFile(filepath.Join(exampleFolder("."), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(exampleFolder("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.IsDir() {
			continue
		}
		if _, isRego := regoExamples[name]; !isRego && !slices.Contains(slices.Concat(goExamples, npmExamples), name) && name != "retention" && name != "node-retention" { // see operator/retainer/preview
			t.Errorf("no test for %s", name)
		}
		if !strings.Contains(string(overview), "| ["+name+"]("+name+") |") {
			t.Errorf("overview lacks %s", name)
		}
		readme := read(t, name, "README.md").Text
		for _, section := range []string{"# " + name + "\n", "## Try it\n", "## What it doesn't do\n"} {
			if !strings.Contains(readme, section) {
				t.Errorf("README of %s lacks %q", name, section)
			}
		}
		for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(readme, -1) {
			if _, err := os.Stat(filepath.Join(exampleFolder(name), link[1])); err != nil {
				t.Errorf("README of %s: %v", name, err)
			}
		}
	}
}

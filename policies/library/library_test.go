package library_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/format"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/library"
	"github.com/gleaner-dev/gleaner/policies/policytest"
	"github.com/gleaner-dev/gleaner/policies/rego"
)

var rewrite = flag.Bool("rewrite", false, "format the policies, write them into their READMEs, and write the resources")

// forEachPolicy runs a test for every policy.
func forEachPolicy(t *testing.T, test func(t *testing.T, p library.Policy)) {
	t.Helper()
	all, err := library.All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 7 {
		t.Fatalf("there are only %d policies", len(all))
	}
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) { test(t, p) })
	}
}

// files are the Rego files of a policy as they are on disk.
func files(t *testing.T, p library.Policy) []rego.File {
	t.Helper()
	var read []rego.File
	for _, name := range []string{"policy.rego", "policy_test.rego"} {
		read = append(read, rego.File{Name: name, Text: text(t, filepath.Join(p.Name, name))})
	}
	return read
}

func text(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// load compiles a policy, as the operator does with an inline source.
func load(t *testing.T, p library.Policy) *rego.Module {
	t.Helper()
	engine, err := rego.New(rego.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	module, err := engine.Load(t.Context(), []rego.File{{Name: "policy.rego", Text: p.Source}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(module.Close)
	return module
}

func startPolicy(t *testing.T, p library.Policy) *rego.Policy {
	t.Helper()
	policy, err := rego.NewPolicy(t.Context(), load(t, p), rego.Options{Name: p.Name, Instances: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(policy.Close)
	return policy
}

func TestPolicies_AreFormatted(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p library.Policy) {
		for _, f := range files(t, p) {
			formatted, err := format.Source(f.Name, []byte(f.Text))
			if err != nil {
				t.Fatal(err)
			}
			if *rewrite {
				if err := os.WriteFile(filepath.Join(p.Name, f.Name), formatted, 0o600); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if diff := cmp.Diff(string(formatted), f.Text); diff != "" {
				t.Errorf("%s (-formatted +got):\n%s", f.Name, diff)
			}
		}
	})
}

func TestPolicies_PassTheirTestsWithFullCoverage(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p library.Policy) {
		report, err := rego.Test(t.Context(), rego.TestOptions{}, files(t, p))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			if r.Failed || r.Error != "" || r.Skipped {
				t.Errorf("%s:%d: %s: %s%s", r.File, r.Line, r.Name, r.Error, r.Output)
			}
		}
		if len(report.Results) < 5 {
			t.Errorf("only %d tests ran", len(report.Results))
		}
		for _, f := range report.Coverage {
			if len(f.Missed) != 0 {
				t.Errorf("%s: no test reaches lines %v", f.File, f.Missed)
			}
		}
	})
}

func TestPolicies_PassTheirCases(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p library.Policy) {
		suite, err := policytest.LoadSuite(filepath.Join(p.Name, "cases.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"policy.rego"}, suite.Modules); diff != "" {
			t.Errorf("modules %s", diff)
		}
		policytest.Run(t, startPolicy(t, p), filepath.Join(p.Name, "cases.yaml"))
		refuses := false
		for _, c := range suite.Cases {
			refuses = refuses || c.Want.Decision == hostabi.DecisionInvalid && strings.HasPrefix(c.Want.Reason, "unknown setting ")
		}
		if !refuses {
			t.Error("no case shows that it refuses a setting that there is not")
		}
	})
}

// inline is where a README has the policy itself.
var inline = regexp.MustCompile(`(?m)^    inline: \|\n((?:      .*\n|\n)*)`)

func indented(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if line != "\n" {
			b.WriteString("      ")
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestReadmes_ContainThePolicy(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p library.Policy) {
		found := inline.FindAllStringSubmatch(p.Readme, -1)
		if len(found) != 1 {
			t.Fatalf("the policy is in its README %d times", len(found))
		}
		if *rewrite {
			written := strings.Replace(p.Readme, found[0][0], "    inline: |\n"+indented(p.Source), 1)
			if err := os.WriteFile(filepath.Join(p.Name, "README.md"), []byte(written), 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
		if diff := cmp.Diff(indented(p.Source), found[0][1]); diff != "" {
			t.Errorf("README.md (-policy.rego +inline); run go test with -rewrite:\n%s", diff)
		}
	})
}

var fenced = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// documents are the YAML documents of a README.
func documents(p library.Policy) []string {
	var all []string
	for _, block := range fenced.FindAllStringSubmatch(p.Readme, -1) {
		for document := range strings.SplitSeq(block[1], "---\n") {
			all = append(all, document)
		}
	}
	return all
}

func TestReadmes_HaveResourcesInMonitorMode(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p library.Policy) {
		policy := startPolicy(t, p)
		kinds := map[string]int{}
		for _, document := range documents(p) {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatalf("%v in:\n%s", err, document)
			}
			kinds[kind.Kind]++
			resource := map[string]any{
				"ClusterPolicyModule": new(v1alpha1.ClusterPolicyModule),
				"ClusterGCPolicy":     new(v1alpha1.ClusterGCPolicy),
				"Namespace":           new(corev1.Namespace),
				"ServiceAccount":      new(corev1.ServiceAccount),
				"ClusterRole":         new(rbacv1.ClusterRole),
				"ClusterRoleBinding":  new(rbacv1.ClusterRoleBinding),

				"ValidatingAdmissionPolicy":        new(admissionv1.ValidatingAdmissionPolicy),
				"ValidatingAdmissionPolicyBinding": new(admissionv1.ValidatingAdmissionPolicyBinding),
			}[kind.Kind]
			if resource == nil {
				t.Fatalf("there is no kind %q to apply", kind.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(document), resource); err != nil {
				t.Errorf("%s: %v", kind.Kind, err)
			}
			switch resource := resource.(type) {
			case *v1alpha1.ClusterPolicyModule:
				if resource.Spec.Rego == nil || resource.Spec.Rego.Inline == nil || *resource.Spec.Rego.Inline != p.Source {
					t.Error("the module is not the policy")
				}
			case *v1alpha1.ClusterGCPolicy:
				applicable(t, p, policy, resource)
			}
		}
		if kinds["ClusterPolicyModule"] != 1 || kinds["ClusterGCPolicy"] == 0 {
			t.Errorf("it has %v", kinds)
		}
	})
}

// applicable sees that a ClusterGCPolicy names the module, changes nothing at
// first, and has settings that the module takes.
func applicable(t *testing.T, p library.Policy, policy *rego.Policy, resource *v1alpha1.ClusterGCPolicy) {
	t.Helper()
	spec := resource.Spec
	if spec.Module == nil || spec.Module.Name != p.Name {
		t.Errorf("its module is %v", spec.Module)
	}
	if spec.Mode != v1alpha1.ModeMonitor {
		t.Errorf("its mode is %q", spec.Mode)
	}
	if (spec.Grants != nil) != (spec.ServiceAccount != nil) {
		t.Error("it has grants without a service account, or the other way round")
	}
	settings := json.RawMessage("{}")
	if spec.Settings != nil {
		settings = spec.Settings.Raw
	}
	verdict, err := policy.Evaluate(t.Context(), hostabi.Request{
		APIVersion: hostabi.Version, Hook: hostabi.HookValidate, Policy: hostabi.Policy{Name: resource.Name, Settings: settings},
	})
	if err != nil || verdict.Decision != hostabi.DecisionValid {
		t.Errorf("settings %s: %+v, %v", settings, verdict, err)
	}
}

func TestPolicies_AreDocumented(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p library.Policy) {
		if !strings.HasSuffix(p.Summary, ".") || len(p.Summary) > 200 {
			t.Errorf("its summary is %q", p.Summary)
		}
		for _, section := range []string{"# " + p.Name + "\n", "## Settings\n", "## Try it\n", "## What it doesn't do\n"} {
			if !strings.Contains(p.Readme, section) {
				t.Errorf("its README lacks %q", section)
			}
		}
		for setting := range known(t, p) {
			if !strings.Contains(p.Readme, "| `"+setting+"` |") {
				t.Errorf("its README does not say what %s is", setting)
			}
		}
	})
}

// known are the settings that a policy knows, by its own words about one that it does
// not. They are asked for without the schema, which would answer first.
func known(t *testing.T, p library.Policy) map[string]bool {
	t.Helper()
	p.Source = strings.Replace(p.Source, "# METADATA\n", "", 1)
	verdict, err := startPolicy(t, p).Evaluate(t.Context(), hostabi.Request{
		APIVersion: hostabi.Version, Hook: hostabi.HookValidate,
		Policy: hostabi.Policy{Name: p.Name, Settings: json.RawMessage(`{"nonsense": 1}`)},
	})
	_, list, ok := strings.Cut(verdict.Reason, "unknown setting nonsense: use ")
	if err != nil || !ok {
		t.Fatalf("%+v, %v", verdict, err)
	}
	names := map[string]bool{}
	for name := range strings.SplitSeq(list, ", ") {
		names[name] = true
	}
	return names
}

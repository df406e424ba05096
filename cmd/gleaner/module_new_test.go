package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies/source"
)

var newHooks = []string{"finalize", "propagate", "collect", "protect", "retain"}

// newModuleFolder writes a module, and makes its folder the current one.
func newModuleFolder(t *testing.T, lang, hook string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "bucket-cleaner")
	out, err := execute(t, "module", "new", "--lang", lang, "--hook", hook, "--dir", folder, "bucket-cleaner")
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "module with hook "+hook, "cd "+folder, "gleaner test")
	t.Chdir(folder)
}

func TestModuleNew_Rego_PassesItsTests(t *testing.T) {
	for _, hook := range newHooks {
		t.Run(hook, func(t *testing.T) {
			newModuleFolder(t, "rego", hook)
			out, err := execute(t, "test")
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			containsAll(t, out, "cases.yaml", "0 failed, 0 skipped")
			if out, err = execute(t, "module", "build"); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile("policy.rego")
			if err != nil {
				t.Fatal(err)
			}
			containsAll(t, out, "Rego modules are not built", "hooks   "+hook, "digest: "+source.Digest([]source.File{{Data: text}}), "gleaner module push .")
			checkResources(t, "policy.rego")
		})
	}
}

// checkResources reads the resources as the API server would, strictly, and sees
// that they name the module's file.
func checkResources(t *testing.T, module string) {
	t.Helper()
	text, err := os.ReadFile("resources.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]func() any{
		"Namespace":           func() any { return &corev1.Namespace{} },
		"ServiceAccount":      func() any { return &corev1.ServiceAccount{} },
		"Role":                func() any { return &rbacv1.Role{} },
		"RoleBinding":         func() any { return &rbacv1.RoleBinding{} },
		"ClusterPolicyModule": func() any { return &v1alpha1.ClusterPolicyModule{} },
		"ClusterGCPolicy":     func() any { return &v1alpha1.ClusterGCPolicy{} },
		"ClusterFinalizer":    func() any { return &v1alpha1.ClusterFinalizer{} },
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		into, ok := known[head.Kind]
		if !ok {
			t.Fatalf("there is a %q among the resources", head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into()); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
	}
	containsAll(t, string(text), "name: bucket-cleaner, key: "+module)
	generator, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, string(generator), "files: ["+module+"]")
}

func TestModuleNew_RequiresEmptyDirectory(t *testing.T) {
	folder := t.TempDir()
	mine := filepath.Join(folder, "policy.rego")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := execute(t, "module", "new", "--lang", "rego", "--dir", folder, "bucket-cleaner")
	wantUsageError(t, err, "is not empty", "--dir")
	if text, err := os.ReadFile(mine); err != nil || string(text) != "mine" {
		t.Errorf("what was there is %q, %v", text, err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v", entries, err)
	}
	if _, err := execute(t, "module", "new", "--lang", "rego", "--dir", mine, "bucket-cleaner"); err == nil {
		t.Error("a file is taken for a folder")
	}
}

func TestModuleNew_DirectoryDefaultsToName(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := execute(t, "module", "new", "bucket-cleaner", "--lang", "rego"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join("bucket-cleaner", "policy.rego")); err != nil {
		t.Error(err)
	}
}

func TestModuleNew_InvalidArguments(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no name":              {[]string{"--lang", "go"}, "requires exactly one name"},
		"two names":            {[]string{"--lang", "go", "a", "b"}, "requires exactly one name"},
		"capitals":             {[]string{"--lang", "go", "BucketCleaner"}, "such as bucket-cleaner"},
		"a path":               {[]string{"--lang", "go", "../a"}, "such as bucket-cleaner"},
		"a digit first":        {[]string{"--lang", "go", "1e3"}, "starting with a letter"},
		"a dash last":          {[]string{"--lang", "go", "a-"}, "such as bucket-cleaner"},
		"too long":             {[]string{"--lang", "go", strings.Repeat("a", 64)}, "up to 63"},
		"no text to YAML":      {[]string{"--lang", "go", "true"}, "use another, such as true-things"},
		"no language":          {[]string{"a"}, "use --lang go, --lang rego or --lang rust"},
		"another language":     {[]string{"--lang", "zig", "a"}, "use go, rego or rust"},
		"another hook":         {[]string{"--lang", "go", "--hook", "validate", "a"}, "use finalize, propagate, collect, protect or retain"},
		"a flag that is not":   {[]string{"--language", "go", "a"}, "--language"},
		"an empty name at all": {[]string{"--lang", "go", ""}, "such as bucket-cleaner"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, append([]string{"module", "new"}, c.args...)...)
			wantUsageError(t, err, c.says)
		})
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 0 {
		t.Errorf("something was written: %v, %v", entries, err)
	}
}

func TestModuleValidate_AcceptsExampleOfRegoSDK(t *testing.T) {
	readme, err := os.ReadFile("../../sdk/rego/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(readme), "    finalize := steps.sequence(")
	if !found {
		t.Fatal("it shows none")
	}
	shown, _, _ = strings.Cut(shown, "\n\n")
	policy := "package gleaner\n\nimport data.gleaner.sdk.steps\n\nurl := \"https://db.example.com/a\"\n\nfinalize := steps.sequence(" + shown + "\n"
	if out, err := execute(t, "module", "validate", writeFile(t, "policy.rego", policy)); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, policy)
	}
}

package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/source"
)

// digestsPrinted is what the command prints.
func digestsPrinted(t *testing.T, args ...string) string {
	t.Helper()
	out, exit := piped(t, append([]string{"module", "digest"}, args...))
	if exit != 0 {
		t.Fatalf("it exits with %d: %s", exit, out)
	}
	return out
}

func digestOfText(text string) string {
	return source.Digest([]source.File{{Data: []byte(text)}})
}

func TestModuleDigest_OfContent(t *testing.T) {
	code := []byte("\x00asm\x01\x00\x00\x00")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(code); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"a.rego": "package gleaner\n", "b.rego": orphanRego, "b_test.rego": "package gleaner_test\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for claim, c := range map[string]struct{ got, want string }{
		"Rego":        {digestsPrinted(t, writeFile(t, "policy.rego", orphanRego)), digestOfText(orphanRego)},
		"WebAssembly": {digestsPrinted(t, writeFile(t, "module.wasm", string(code))), digestOfText(string(code))},
		"compressed":  {digestsPrinted(t, writeFile(t, "module.wasm.gz", packed.String())), digestOfText(string(code))},
		"a folder, without tests": {digestsPrinted(t, folder), source.Digest([]source.File{
			{Name: "a.rego", Data: []byte("package gleaner\n")}, {Name: "b.rego", Data: []byte(orphanRego)},
		})},
	} {
		if strings.TrimSpace(c.got) != c.want {
			t.Errorf("%s: got %q, want %s", claim, c.got, c.want)
		}
	}
}

func TestModuleDigest_OfAManifest(t *testing.T) {
	const inline = "apiVersion: gleaner.dev/v1alpha1\nkind: ClusterPolicyModule\nmetadata: {name: inline}\nspec: {rego: {inline: \"package gleaner\\n\"}}\n"
	const rest = `---
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: mapped, namespace: shop}
spec: {wasm: {configMap: {name: code, key: module.wasm}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: code, namespace: shop}
binaryData: {module.wasm: AGFzbQEAAAA=}
`
	one := digestOfText("package gleaner\n")
	if got := digestsPrinted(t, "-f", writeFile(t, "module.yaml", inline)); got != one+"\n" {
		t.Errorf("of one: %q", got)
	}
	want := one + "  clusterpolicymodule/inline\n" + digestOfText("\x00asm\x01\x00\x00\x00") + "  policymodule/mapped\n"
	if got := digestsPrinted(t, "-f", writeFile(t, "modules.yaml", inline+rest)); got != want {
		t.Errorf("of two: got %q, want %q", got, want)
	}
}

func TestModuleDigest_InvalidArguments(t *testing.T) {
	const remote = "apiVersion: gleaner.dev/v1alpha1\nkind: ClusterPolicyModule\nmetadata: {name: m}\nspec: {wasm: {image: \"example.com/m:v1\"}}\n"
	manifest := writeFile(t, "module.yaml", remote)
	for want, args := range map[string][]string{
		"use -f " + manifest:                   {manifest},
		"its content is not in the manifest":   {"-f", manifest},
		"use one of them":                      {"-f", manifest, "policy.rego"},
		"requires a module":                    {},
		"no PolicyModule or ClusterPolicyModu": {"-f", writeFile(t, "other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n")},
	} {
		var out, errOut bytes.Buffer
		if code := invoke(t, "gleaner", append([]string{"module", "digest"}, args...), &out, &errOut); code == 0 || !strings.Contains(errOut.String(), want) {
			t.Errorf("%v: exit %d, %s: want %q", args, code, errOut.String(), want)
		}
	}
}

package devcluster

import (
	"os"
	"strings"
	"testing"
)

func TestKubernetesVersion_IsResolved(t *testing.T) {
	for wanted, want := range map[string]string{
		"": "v1.37.2", "1.37": "v1.37.2", "v1.37": "v1.37.2", "1.35": "v1.35.4", "v1.33": "v1.33.13", "1.34.9": "v1.34.9", "v1.36.1": "v1.36.1",
	} {
		if got, err := controlPlane.at(wanted).resolve("v1.37.2"); err != nil || got != want {
			t.Errorf("%q: got %s, %v", wanted, got, err)
		}
	}
	t.Setenv(versionVariable, "1.36")
	if got, err := controlPlane.resolve("v1.37.2"); err != nil || got != "v1.36.3" {
		t.Errorf("from the environment: got %s, %v", got, err)
	}
	if got, err := controlPlane.at("1.35").resolve("v1.37.2"); err != nil || got != "v1.35.4" {
		t.Errorf("an option instead of the environment: got %s, %v", got, err)
	}
	for _, wanted := range []string{"1.20", "latest", "1.37.2-rc.1", "../1.37", "2.1.0"} {
		if got, err := controlPlane.at(wanted).resolve("v1.37.2"); err == nil || !strings.Contains(err.Error(), "use one of v1.37.2, v1.36.3") {
			t.Errorf("%q: got %s, %v", wanted, got, err)
		}
	}
}

func TestKubernetesVersion_ModuleHasProgramsAndReplacements(t *testing.T) {
	pinned, err := os.ReadFile("binaries/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	text, err := moduleOf(string(pinned), "v1.37.2", "v1.35.4")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"module " + nestedModule + "\n\ngo 1.", "\nrequire k8s.io/kubernetes v1.35.4\n", "\tk8s.io/kubernetes/cmd/kube-apiserver\n", "\tk8s.io/apiserver => k8s.io/apiserver v0.35.4\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	if strings.Contains(text, "37.2") || strings.Contains(text, "// indirect") {
		t.Errorf("it has requirements of the other version:\n%s", text)
	}
	if _, err := moduleOf(string(pinned), "v1.37.2", "v1.32.1"); err == nil || !strings.Contains(err.Error(), "use 1.33 or a newer one") {
		t.Errorf("an older version: %v", err)
	}
}

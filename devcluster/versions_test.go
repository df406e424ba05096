package devcluster

import (
	"os"
	"strings"
	"testing"
)

// What both the product and the control plane use is compiled once only if its version
// is the same, which is most of Kubernetes.
func TestTheControlPlaneHasTheVersionsOfTheProduct(t *testing.T) {
	product, control := versionsIn(t, "../go.mod"), versionsIn(t, "binaries/go.mod")
	shared := 0
	for module, version := range product {
		other, both := control[module]
		if !both {
			continue
		}
		shared++
		if other != version {
			t.Errorf("%s is %s in the product, and %s in the control plane: in devcluster/binaries, run \"GOWORK=off go get %s@%s && go mod tidy\"", module, version, other, module, version)
		}
	}
	if shared < 50 {
		t.Errorf("only %d modules are found in both", shared)
	}
}

// versionsIn returns what a go.mod requires, or puts in place of that.
func versionsIn(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(data)) {
		switch fields := strings.Fields(line); {
		case len(fields) >= 4 && fields[1] == "=>":
			versions[fields[0]] = fields[3]
		case len(fields) >= 2 && strings.HasPrefix(fields[1], "v") && versions[fields[0]] == "":
			versions[fields[0]] = fields[1]
		}
	}
	return versions
}

// With -trimpath, the compiler is given the version that is required, and not the one
// that replaces it: under v0.0.0 a package would be another than the product's.
func TestTheControlPlaneRequiresVersionsThatExist(t *testing.T) {
	data, err := os.ReadFile("binaries/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[1] == "v0.0.0" {
			t.Errorf("%s is required at v0.0.0: write the version that replaces it", fields[0])
		}
	}
}

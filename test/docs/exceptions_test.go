package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exception is a block of commands that is not run by TestCommands, and why.
type exception struct {
	document, first string // the block's first line
	reason          string
	by              *place // who runs it, or the like of it, in place of that
}

// place is where else commands are run: a file, and the texts in it that run them.
type place struct {
	file  string
	texts []string
}

// exceptionOf returns which exception a block is, or -1.
func exceptionOf(document string, b block) int {
	for i, e := range exceptions {
		if e.document == document && e.first == b.first {
			return i
		}
	}
	return -1
}

// No block slips by: each exception is one block, has a reason, and is run where it says.
func TestExceptionsAreBlocks(t *testing.T) {
	matched := make([]int, len(exceptions))
	for _, name := range documents(t) {
		blocks, err := readDocument(t, name).blocks()
		if err != nil {
			t.Error(err)
		}
		for _, b := range blocks {
			if i := exceptionOf(name, b); i >= 0 {
				matched[i]++
			}
		}
	}
	for i, e := range exceptions {
		if matched[i] != 1 || e.reason == "" {
			t.Errorf("%s: %q matches %d blocks of commands, and has the reason %q: it has to match one, and have one", e.document, e.first, matched[i], e.reason)
		}
		if e.by == nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.by.file)))
		if err != nil {
			t.Error(err)
		}
		for _, text := range e.by.texts {
			if !strings.Contains(string(data), text) {
				t.Errorf("%s: %q: %s has no %q any more: who runs this now?", e.document, e.first, e.by.file, text)
			}
		}
	}
}

// Without a setting there is nothing to be run.
func TestSettingsAreOfDocuments(t *testing.T) {
	for name := range settings {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
			t.Error(err)
		}
	}
}

// withNodes is why a block waits for pods: nothing runs them here.
const withNodes = "no node runs the pods of a control plane on this machine"

// exceptions are all blocks that are not run.
var exceptions = []exception{
	{"README.md", "make demo    # a Deployment is deleted in background, in foreground and orphaning, things with policies, and a bucket by a finalizer",
		"it takes minutes, and runs this test", &place{".ci/run", []string{"generate-check demo", "make --no-print-directory test"}}},
	{"CONTRIBUTING.md", "make demo    # see it work", "it takes minutes, and runs this test", &place{".ci/run", []string{"generate-check demo", "make --no-print-directory test"}}},
	{"docs/companion.md", "make demo-companion", "CI runs it", &place{".ci/run", []string{"demo-companion"}}},
	{"docs/differential.md", "go test ./test/differential -run RandomScripts -scripts 1 -seed 145   # that one again",
		"these are flags of a test, which runs with other scripts", &place{"Makefile", []string{"go test ./test/differential", "RandomScripts"}}},

	{"docs/tutorials/4-deploy.md", "make image IMAGE=registry.example.com/gleaner:v1", "it needs a registry",
		&place{"test/deploy/image_test.go", []string{"func TestImage_IsPulledFromARegistryAndCollects("}}},
	{"docs/tutorials/4-deploy.md", "kubectl -n gleaner-system rollout status deployment/gleaner", withNodes,
		&place{"test/deploy/policies_test.go", []string{"func TestPolicies_AreCarriedOutByTheServiceAccount("}}},
	{"docs/install.md", "kubectl -n gleaner-system rollout status deployment/gleaner", withNodes,
		&place{"test/deploy/policies_test.go", []string{"func TestPolicies_AreCarriedOutByTheServiceAccount("}}},
	{"docs/install.md", "make image                                            # in bin/image, in the OCI layout", "it needs a registry",
		&place{"test/deploy/image_test.go", []string{"func TestImage_IsPulledFromARegistryAndCollects("}}},
	{"docs/troubleshooting.md", `kubectl -n gleaner-system logs deployment/gleaner --all-pods | grep '"KIND NAMESPACE/NAME"'`, withNodes, nil},
	{"docs/troubleshooting.md", "kubectl -n gleaner-system logs deployment/gleaner --all-pods --prefix", withNodes, nil},
	{"docs/troubleshooting.md", "kubectl -n gleaner-system port-forward deployment/gleaner 8443 &", withNodes, nil},
	{"docs/endpoints.md", "kubectl -n gleaner-system port-forward deployment/gleaner 8443 &", withNodes, nil},

	{"docs/cli.md", "$ gleaner explain configmap/data -n shop", "it shows a cluster in which something has failed",
		&place{"test/ask/testdata/2-explain.txt", []string{"$ gleaner explain "}}},
	{"docs/cli.md", "$ gleaner explain configmap/leaf -n shop", "it shows a cluster in which something has failed",
		&place{"test/ask/testdata/2-explain.txt", []string{"$ gleaner explain "}}},
	{"docs/cli.md", "$ gleaner stuck --longer-than 1s", "it shows a cluster in which something has failed",
		&place{"test/ask/testdata/3-stuck.txt", []string{"$ gleaner stuck --longer-than"}}},
	{"docs/cli.md", "$ gleaner doctor", "it shows a cluster in which something has failed",
		&place{"test/ask/testdata/4-doctor.txt", []string{"$ gleaner doctor"}}},

	{"sdk/go/README.md", "tinygo build -target=wasip1 -buildmode=c-shared -scheduler=none -gc=leaking -opt=2 -no-debug -o policy.wasm .", "it needs TinyGo",
		&place{"policies/policytest/guest_test.go", []string{`"tinygo", "build"`}}},
	{"sdk/go/README.md", "go install golang.org/dl/go1.23.12@latest && ~/go/bin/go1.23.12 download", "it needs TinyGo, and an older Go from the network", nil},
	{"examples/bucket-finalizer/README.md", "kubectl create secret generic bucket-credentials -n gleaner-examples --from-literal=accessKeyID=… --from-literal=secretAccessKey=…",
		"it needs a storage of the reader's own", nil},
}

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exception is a block of commands that TestCommands does not run, and the reason.
type exception struct {
	document, first string // the block's first line
	reason          string
	by              *runner // where it, or a similar command, is run instead
}

// runner is a file that runs commands, and the texts in it that do.
type runner struct {
	file  string
	texts []string
}

// findException returns the index of a block's exception, or -1.
func findException(document string, b block) int {
	for i, e := range exceptions {
		if e.document == document && e.first == b.first {
			return i
		}
	}
	return -1
}

// Each exception must match one block, have a reason, and be run where it says.
func TestExceptions_MatchBlocks(t *testing.T) {
	matched := make([]int, len(exceptions))
	for _, name := range documents(t) {
		blocks, err := readDocument(t, name).blocks()
		if err != nil {
			t.Error(err)
		}
		for _, b := range blocks {
			if i := findException(name, b); i >= 0 {
				matched[i]++
			}
		}
	}
	for i, e := range exceptions {
		if matched[i] != 1 || e.reason == "" {
			t.Errorf("%s: %q matches %d blocks and has the reason %q: want one block and a reason", e.document, e.first, matched[i], e.reason)
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
				t.Errorf("%s: %q: %s no longer contains %q", e.document, e.first, e.by.file, text)
			}
		}
	}
}

// A setting must belong to a document with commands.
func TestSettings_MatchDocuments(t *testing.T) {
	for name := range settings {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
			t.Error(err)
		}
	}
}

// needsNodes is the reason for blocks that wait for pods.
const needsNodes = "no node runs the pods of a control plane on this machine"

// needsArchive is the reason for blocks that read an archive.
const needsArchive = "it needs an archive with what was deleted"

// exceptions are all blocks that are not run.
var exceptions = []exception{
	{"README.md", "make demo    # deletes a Deployment with each propagation policy, objects with policies, and a bucket by a finalizer",
		"it takes minutes, and runs this test", &runner{".ci/run", []string{"for check in demo demo-companion", "make --no-print-directory test"}}},
	{"CONTRIBUTING.md", "make demo    # see it work", "it takes minutes, and runs this test", &runner{".ci/run", []string{"for check in demo demo-companion", "make --no-print-directory test"}}},
	{"docs/companion.md", "make demo-companion", "CI runs it", &runner{".ci/run", []string{"demo-companion"}}},
	{"docs/differential.md", "go test ./test/differential -run RandomScripts -scripts 1 -seed 145   # that one again",
		"these are flags of a test, which runs with other scripts", &runner{"Makefile", []string{"go test ./test/differential", "RandomScripts"}}},

	{"README.md", "helm install gleaner gleaner-VERSION.tgz --namespace gleaner-system --create-namespace", "it needs the files of a release",
		&runner{"test/chart/install_test.go", []string{"func TestChart_InstallUpgradeAndUninstall("}}},
	{"docs/install.md", "helm install gleaner gleaner-VERSION.tgz --namespace gleaner-system --create-namespace", "it needs the files of a release",
		&runner{"test/chart/install_test.go", []string{"func TestChart_InstallUpgradeAndUninstall("}}},

	{"docs/tutorials/4-deploy.md", "make image IMAGE=registry.example.com/gleaner:v1", "it needs a registry",
		&runner{"test/deploy/image_test.go", []string{"func TestImage_IsPulledFromARegistryAndCollects("}}},
	{"docs/tutorials/4-deploy.md", "kubectl -n gleaner-system rollout status deployment/gleaner", needsNodes,
		&runner{"test/deploy/policies_test.go", []string{"func TestPolicies_AreEnforcedByTheServiceAccount("}}},
	{"docs/install.md", "kubectl -n gleaner-system rollout status deployment/gleaner", needsNodes,
		&runner{"test/deploy/policies_test.go", []string{"func TestPolicies_AreEnforcedByTheServiceAccount("}}},
	{"docs/install.md", "make release VERSION=v1.2.3 PUSH=registry.example.com/gleaner", "it needs a registry and a section of the changelog",
		&runner{"tools/release/release_test.go", []string{"func TestRelease_IsReproducible("}}},
	{"docs/install.md", "make image                                            # in bin/image, in the OCI layout", "it needs a registry",
		&runner{"test/deploy/image_test.go", []string{"func TestImage_IsPulledFromARegistryAndCollects("}}},
	{"docs/install.md", `kubectl -n gleaner-system create secret generic gleaner-archive \`, "it needs a bucket", nil},
	{"docs/troubleshooting.md", `kubectl -n gleaner-system logs deployment/gleaner --all-pods | grep '"KIND NAMESPACE/NAME"'`, needsNodes, nil},
	{"docs/troubleshooting.md", "kubectl -n gleaner-system logs deployment/gleaner --all-pods --prefix", needsNodes, nil},
	{"docs/troubleshooting.md", "kubectl -n gleaner-system port-forward deployment/gleaner 8443 &", needsNodes, nil},
	{"docs/endpoints.md", "kubectl -n gleaner-system port-forward deployment/gleaner 8443 &", needsNodes, nil},

	{"docs/cli.md", "$ gleaner explain configmap/data -n shop", "it shows a cluster in which something has failed",
		&runner{"test/inspect/testdata/2-explain.txt", []string{"$ gleaner explain "}}},
	{"docs/cli.md", "$ gleaner explain configmap/leaf -n shop", "it shows a cluster in which something has failed",
		&runner{"test/inspect/testdata/2-explain.txt", []string{"$ gleaner explain "}}},
	{"docs/cli.md", "$ gleaner stuck --longer-than 1s", "it shows a cluster in which something has failed",
		&runner{"test/inspect/testdata/3-stuck.txt", []string{"$ gleaner stuck --longer-than"}}},
	{"docs/cli.md", "$ gleaner doctor", "it shows a cluster in which something has failed",
		&runner{"test/inspect/testdata/4-doctor.txt", []string{"$ gleaner doctor"}}},

	{"docs/howto/undo-a-deletion.md", "gleaner restore deployment/web -n shop --identity key.txt", "it needs an identity of age",
		&runner{"test/integration/restore/workloads_test.go", []string{`"--identity", file`}}},
	{"docs/howto/undo-a-deletion.md", "export GLEANER_ARCHIVE=s3://bucket/prefix                # or file:///FOLDER, while no operator has it open", needsArchive,
		&runner{"internal/cli/archive/archive_test.go", []string{"func TestVerify_FindsCorruptEntries(", "func TestExport_WritesManifests("}}},

	{"docs/howto/sign-modules.md", "cosign generate-key-pair", "it needs cosign and a registry",
		&runner{"cmd/gleaner/module_sign_test.go", []string{"func TestModulePush_SignKey_SignsForVerify("}}},
	{"docs/howto/sign-modules.md", "gleaner module verify -f module.yaml", "it needs a registry with a signed module",
		&runner{"cmd/gleaner/module_sign_test.go", []string{"func TestModuleVerify_Manifest("}}},

	{"docs/records.md", "gleaner records -n shop --since 1h", "it follows records until Ctrl-C",
		&runner{"test/process/records_test.go", []string{`{"records", "configmap/dependent"}`}}},
	{"docs/records.md", "gleaner records -A --archive file:///var/lib/gleaner/archive", needsArchive,
		&runner{"test/process/records_test.go", []string{"--archive"}}},

	{"docs/ui.md", "gleaner ui", "it serves pages until Ctrl-C",
		&runner{"test/inspect/ui_test.go", []string{"func TestUI_ShowsWhatHappensInTheCluster("}}},

	{"sdk/go/README.md", "tinygo build -target=wasip1 -buildmode=c-shared -scheduler=none -gc=leaking -opt=2 -no-debug -o policy.wasm .", "it needs TinyGo",
		&runner{"policies/policytest/guest_test.go", []string{`"tinygo", "build"`}}},
	{"sdk/go/README.md", "go install golang.org/dl/go1.23.12@latest && ~/go/bin/go1.23.12 download", "it needs TinyGo, and an older Go from the network", nil},
	{"sdk/rust/README.md", "gleaner module build            # checks what it has built, and says what to write in the resource", "it needs Rust",
		&runner{"cmd/gleaner/module_new_rust_test.go", []string{`"module", "build"`}}},
	{"sdk/rust/README.md", "cargo build --release --target wasm32-unknown-unknown", "it needs Rust",
		&runner{"policies/policytest/rust_test.go", []string{`"--release", "--target", "wasm32-unknown-unknown"`}}},
	{"examples/backup-before-delete/README.md", "gleaner module build rust -o deploy/module.wasm", "it needs Rust",
		&runner{"test/examples/rust_test.go", []string{`"build", folder, "-o", target`, `"cargo", "test"`}}},
	{"examples/assemblyscript/README.md", "cd examples/assemblyscript && npm ci && npm run build", "it needs npm",
		&runner{"policies/policytest/guest_test.go", []string{"func TestAssemblyScriptModule_PassesCases("}}},
	{"examples/bucket-finalizer/README.md", "kubectl create secret generic bucket-credentials -n gleaner-examples --from-literal=accessKeyID=… --from-literal=secretAccessKey=…",
		"it needs a storage of the reader's own", nil},
}

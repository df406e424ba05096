// Package cosign tests signatures of modules with cosign itself: Gleaner verifies what cosign signs, and cosign what Gleaner signs.
package cosign

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/sigstore/cosign/v3/cmd/cosign/cli"

	"github.com/gleaner-dev/gleaner/test/program"
)

// gleaner is the program that the tests share.
var gleaner program.Gleaner

// If the environment variable asCosign is set, this test binary runs cosign.
const asCosign = "GLEANER_TEST_RUN_COSIGN"

func TestMain(m *testing.M) {
	if os.Getenv(asCosign) != "" {
		if err := cli.New().Execute(); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if err := gleaner.Remove(); err != nil {
		log.Print(err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// fixture is a registry, and a folder with key pairs and a module, in which both programs run.
type fixture struct {
	*testing.T
	registry, folder string
}

// newFixture makes the key pairs "cosign" and "other" with cosign, and a configuration by which it signs without services.
func newFixture(t *testing.T, options []registry.Option) *fixture {
	server := httptest.NewServer(registry.New(append(options, registry.Logger(log.New(io.Discard, "", 0)))...))
	t.Cleanup(server.Close)
	f := &fixture{t, strings.TrimPrefix(server.URL, "http://"), t.TempDir()}
	f.write("policy.rego", module)
	f.mustCosign("generate-key-pair")
	f.mustCosign("generate-key-pair", "--output-key-prefix", "other")
	f.mustCosign("signing-config", "create", "--out", "offline.json")
	return f
}

func (f *fixture) write(name, text string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.folder, name), []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

// push pushes the module, and returns the name of the image.
func (f *fixture) push(name string, flags ...string) string {
	f.Helper()
	image := f.registry + "/modules/" + name
	f.mustGleaner(append([]string{"module", "push", "policy.rego", image}, flags...)...)
	return image
}

func (f *fixture) cosign(args ...string) (string, error) {
	f.Helper()
	self, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	return f.run(self, args, asCosign+"=1")
}

func (f *fixture) mustCosign(args ...string) string {
	f.Helper()
	out, err := f.cosign(args...)
	if err != nil {
		f.Fatalf("cosign %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (f *fixture) mustGleaner(args ...string) string {
	f.Helper()
	out, err := f.run(gleaner.Path(f), args)
	if err != nil {
		f.Fatalf("gleaner %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// gleanerFails makes sure that a command fails and says so.
func (f *fixture) gleanerFails(want string, args ...string) {
	f.Helper()
	if out, err := f.run(gleaner.Path(f), args); err == nil || !strings.Contains(out, want) {
		f.Errorf("gleaner %s: %v\n%s\nwant an error that says %q", strings.Join(args, " "), err, out, want)
	}
}

// run runs a program. What is not on loopback is out of reach.
func (f *fixture) run(path string, args []string, environment ...string) (string, error) {
	f.Helper()
	cmd := exec.CommandContext(f.Context(), path, args...)
	cmd.Dir = f.folder
	const unreachable = "http://127.0.0.1:1"
	cmd.Env = append([]string{"HOME=" + f.folder, "PATH=" + os.Getenv("PATH"), "COSIGN_PASSWORD=secret",
		"HTTP_PROXY=" + unreachable, "HTTPS_PROXY=" + unreachable, "NO_PROXY=127.0.0.1"}, environment...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

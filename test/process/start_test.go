package process

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// runToFailure runs the command, which must end by itself, and returns its exit code and output.
func runToFailure(t *testing.T, args ...string) (code int, message string) {
	t.Helper()
	path := gleaner.Path(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	out, _ := cmd.CombinedOutput() // the exit code is checked
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestStart_ExitCode_DistinguishesUsageErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a wrong flag":    {[]string{"run", "--workers=0"}, 2, "gleaner: --workers=0: use a number from 1 to 1000\n"},
		"a wrong command": {[]string{"rnu"}, 2, "see gleaner --help"},
		"no kubeconfig":   {[]string{"run", "--kubeconfig=" + missing}, 1, missing},
	} {
		t.Run(name, func(t *testing.T) {
			if code, message := runToFailure(t, tc.args...); code != tc.code || !strings.Contains(message, tc.says) {
				t.Errorf("exit code %d: %s", code, message)
			}
		})
	}
}

func TestStart_FailsOnAnAddressInUse(t *testing.T) {
	cluster := devtest.Shared(t)
	first := startReady(t, cluster)
	_, taken, _ := strings.Cut(first.metrics, "://")
	code, message := runToFailure(t, "run", "--kubeconfig="+cluster.Kubeconfig(), "--dry-run", "--health-probe-bind-address=0",
		"--insecure-debug", "--metrics-bind-address="+taken)
	if code != 1 || !strings.Contains(message, taken) {
		t.Errorf("exit code %d: %s", code, message)
	}
}

// The API server's version is public, so reading it does not prove that the credentials are valid.
func TestStart_FailsOnInvalidCredentials(t *testing.T) {
	cluster := devtest.Shared(t)
	for name, token := range map[string]string{"a token that has expired": "expired", "none at all": ""} {
		t.Run(name, func(t *testing.T) {
			admin := cluster.RESTConfig()
			config := rest.AnonymousClientConfig(admin)
			config.BearerToken = token
			path := kubeconfig(t, config)
			code, message := runToFailure(t, "run", "--kubeconfig="+path, "--health-probe-bind-address=0", "--metrics-bind-address=0")
			if code != 1 || !strings.Contains(message, admin.Host) || !strings.Contains(message, "--kubeconfig") {
				t.Errorf("exit code %d: %s", code, message)
			}
		})
	}
}

// kubeconfig writes a kubeconfig file, and returns its path.
func kubeconfig(t *testing.T, config *rest.Config) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := devcluster.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	return path
}

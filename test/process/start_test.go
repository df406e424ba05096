package process

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// fails runs the command, which has to end soon of itself, and returns how.
func fails(t *testing.T, args ...string) (code int, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), args...)
	tieToParent(cmd)
	out, _ := cmd.CombinedOutput() // the code tells
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestStart_FailsWithACodeThatTellsTheCommandLineFromTheRest(t *testing.T) {
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
			if code, message := fails(t, tc.args...); code != tc.code || !strings.Contains(message, tc.says) {
				t.Errorf("exit code %d: %s", code, message)
			}
		})
	}
}

func TestStart_FailsOnAnAddressThatIsTaken(t *testing.T) {
	cluster := sharedCluster(t)
	first := running(t, cluster)
	_, taken, _ := strings.Cut(first.metrics, "://")
	code, message := fails(t, "run", "--kubeconfig="+cluster.Kubeconfig(), "--dry-run", "--health-probe-bind-address=0",
		"--insecure-debug", "--metrics-bind-address="+taken)
	if code != 1 || !strings.Contains(message, taken) {
		t.Errorf("exit code %d: %s", code, message)
	}
}

// The API server tells its version to whoever asks, so that alone shows nothing.
func TestStart_FailsOnCredentialsThatTheAPIServerDoesNotKnow(t *testing.T) {
	cluster := sharedCluster(t)
	for name, token := range map[string]string{"a token that has expired": "expired", "none at all": ""} {
		t.Run(name, func(t *testing.T) {
			admin := cluster.RESTConfig()
			path := kubeconfig(t, admin.Host, admin.CAData, token)
			code, message := fails(t, "run", "--kubeconfig="+path, "--health-probe-bind-address=0", "--metrics-bind-address=0")
			if code != 1 || !strings.Contains(message, admin.Host) || !strings.Contains(message, "--kubeconfig") {
				t.Errorf("exit code %d: %s", code, message)
			}
		})
	}
}

// kubeconfig writes a kubeconfig file.
func kubeconfig(t *testing.T, host string, ca []byte, token string) (path string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: host, CertificateAuthorityData: ca}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// file makes a file that a test is over with when it is.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// unstartable runs run, which has to end soon with an error in these words.
func unstartable(t *testing.T, words []string, args ...string) {
	t.Helper()
	began := time.Now()
	_, err := execute(t, append([]string{"run"}, args...)...)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s to say so", took)
	}
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestKubeconfig_ThatIsNoUseIsToldWithItsPathAndTheFlag(t *testing.T) {
	for name, content := range map[string]string{
		"not YAML":               "{",
		"not a kubeconfig":       "apiVersion: v1\nkind: Pod\n",
		"without such a context": strings.Replace(kubeconfig, "current-context: x", "current-context: y", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(content, "%q") {
				content = fmt.Sprintf(content, "https://127.0.0.1:1")
			}
			path := file(t, content)
			unstartable(t, []string{path, "--kubeconfig"}, "--kubeconfig="+path)
		})
	}
}

func TestKubeconfig_ThatIsNotThereIsToldWithItsPathAndTheFlag(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nothing")
	unstartable(t, []string{path, "--kubeconfig"}, "--kubeconfig="+path)
}

func TestKubeconfig_ThatNobodyNamedIsAskedFor(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "nothing"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	unstartable(t, []string{"--kubeconfig", "run in a pod"})
}

func TestAPIServer_ThatIsNotThereIsToldWithItsAddressAndTheFlag(t *testing.T) {
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, fmt.Sprintf(kubeconfig, "https://"+address))
	unstartable(t, []string{address, "refused", "--kubeconfig"}, "--kubeconfig="+path)
}

func TestAPIServer_ThatAnswersOtherwiseIsToldWithItsAddressAndTheFlag(t *testing.T) {
	for name, answer := range map[string]int{
		"it does not know us":      http.StatusUnauthorized,
		"it does not let us in":    http.StatusForbidden,
		"it is another web server": http.StatusNotFound,
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) }))
			defer server.Close()
			path := file(t, fmt.Sprintf(kubeconfig, server.URL))
			unstartable(t, []string{server.URL, "--kubeconfig"}, "--kubeconfig="+path)
		})
	}
}

func TestAPIServer_WithACertificateFromElsewhereIsToldWithItsAddressAndTheFlag(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of the client that hangs up
	server.StartTLS()
	defer server.Close()
	path := file(t, fmt.Sprintf(kubeconfig, server.URL))
	unstartable(t, []string{server.URL, "certificate", "--kubeconfig"}, "--kubeconfig="+path)
}

package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
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

// wantStartError runs run, which has to end with an error in these words.
func wantStartError(t *testing.T, words []string, args ...string) {
	t.Helper()
	_, err := execute(t, append([]string{"run"}, args...)...)
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestKubeconfig_Invalid_ErrorNamesPathAndFlag(t *testing.T) {
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
			wantStartError(t, []string{path, "--kubeconfig"}, "--kubeconfig="+path)
		})
	}
}

func TestKubeconfig_Missing_ErrorNamesPathAndFlag(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nothing")
	wantStartError(t, []string{path, "--kubeconfig"}, "--kubeconfig="+path)
}

func TestKubeconfig_Unset_ErrorNamesFlag(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "nothing"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	wantStartError(t, []string{"--kubeconfig", "run in a pod"})
}

func TestKubeconfig_Unset_ErrorSaysWhatToSet(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "nothing"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for command, files := range map[string]bool{
		"explain configmap/a": false, "stuck": false, "monitor": false, "doctor": false, "release configmap/a": false,
		"graph configmap/a": true, "preview delete configmap/a": true, "rbac": true,
	} {
		t.Run(command, func(t *testing.T) {
			_, err := execute(t, strings.Fields(command)...)
			if err == nil || !strings.Contains(err.Error(), "set KUBECONFIG or --kubeconfig") || strings.Contains(err.Error(), "-f") != files {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestKubeconfig_Unset_ServerFlagIsUsed(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "nothing"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	if _, err := execute(t, "stuck", "--server="+closed.URL); err == nil || strings.Contains(err.Error(), "KUBECONFIG") {
		t.Errorf("got %v", err)
	}
}

func TestMovedCommands_NameTheirNewProgram(t *testing.T) {
	for command, use := range map[string][]string{
		"demo": {"gleaner-dev demo", "make demo"}, "demo --companion": {"gleaner-dev demo", "make demo"},
		"dev": {"gleaner-dev dev"}, "dev -h": {"gleaner-dev dev"},
	} {
		t.Run(command, func(t *testing.T) {
			out, err := execute(t, strings.Fields(command)...)
			status := exit.Error{}
			if !errors.As(err, &status) || status.Code != exit.CodeUsage {
				t.Fatalf("got %v, %s", err, out)
			}
			for _, words := range use {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("the error does not say %q: %v", words, err)
				}
			}
		})
	}
	if out, err := execute(t, "--help"); err != nil || strings.Contains(out, "demo") {
		t.Errorf("the help lists a command that is not there: %v\n%s", err, out)
	}
}

func TestAPIServer_Unreachable_ErrorNamesAddressAndFlag(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	address := closed.Listener.Addr().String()
	closed.Close()
	path := file(t, fmt.Sprintf(kubeconfig, "https://"+address))
	wantStartError(t, []string{address, "refused", "--kubeconfig"}, "--kubeconfig="+path)
}

func TestAPIServer_WrongResponse_ErrorNamesAddressAndFlag(t *testing.T) {
	for name, answer := range map[string]int{
		"it does not know us":      http.StatusUnauthorized,
		"it does not let us in":    http.StatusForbidden,
		"it is another web server": http.StatusNotFound,
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.WriteHeader(answer)
			}))
			defer server.Close()
			path := file(t, fmt.Sprintf(kubeconfig, server.URL))
			wantStartError(t, []string{server.URL, "--kubeconfig"}, "--kubeconfig="+path)
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests, want one: a wrong configuration is not retried", n)
			}
		})
	}
}

func TestAPIServer_UntrustedCertificate_ErrorNamesAddressAndFlag(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of the client that hangs up
	var connections atomic.Int32
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	path := file(t, fmt.Sprintf(kubeconfig, server.URL))
	wantStartError(t, []string{server.URL, "certificate", "--kubeconfig"}, "--kubeconfig="+path)
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want one: a wrong configuration is not retried", n)
	}
}

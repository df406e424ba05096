package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	images "github.com/google/go-containerregistry/pkg/registry"
	"helm.sh/helm/v4/pkg/registry"
)

// onRegistry returns a written release for a registry that runs until the test ends.
func onRegistry(t *testing.T) (r *release, host string) {
	t.Helper()
	for _, variable := range []string{"HELM_CONFIG_HOME", "DOCKER_CONFIG"} { // no credentials
		t.Setenv(variable, t.TempDir())
	}
	server := httptest.NewServer(images.New(images.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	r = newRelease(t)
	r.registry = host + "/gleaner-dev/gleaner"
	written(t, r)
	return r, host
}

func TestPushChart_HelmPullsTheFileOfTheRelease(t *testing.T) {
	r, host := onRegistry(t)
	address, err := r.pushChart()
	if err != nil {
		t.Fatal(err)
	}
	if want := "oci://" + host + "/gleaner-dev/charts/gleaner --version 1.2.3 (sha256:"; !strings.HasPrefix(address, want) {
		t.Errorf("got %s, want %s…", address, want)
	}
	client, err := registry.NewClient(registry.ClientOptPlainHTTP())
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := client.Pull(host + "/gleaner-dev/charts/gleaner:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(r.folder, "gleaner-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(pulled.Chart.Data, file) {
		t.Error("the chart in the registry is not the file of the release")
	}
	if pulled.Chart.Meta.AppVersion != "v1.2.3" {
		t.Errorf("appVersion %s", pulled.Chart.Meta.AppVersion)
	}
	again, err := r.pushChart()
	if err != nil || again != address {
		t.Errorf("pushed again: %s, %v; want %s", again, err, address)
	}
}

func TestPushChart_BeforeTheReleaseIsWritten_SaysWhatToDo(t *testing.T) {
	r := newRelease(t)
	if _, err := r.pushChart(); err == nil || !strings.Contains(err.Error(), "write the release first") {
		t.Errorf("got %v", err)
	}
}

func TestOnLoopback(t *testing.T) {
	for repository, want := range map[string]bool{
		"localhost:5000/gleaner": true, "127.0.0.1:1/a": true, "[::1]:5000/a": true, "localhost/a": true,
		"ghcr.io/gleaner-dev/gleaner": false, "localhost.example.com/a": false, "10.0.0.1:5000/a": false, "": false,
	} {
		if got := onLoopback(repository); got != want {
			t.Errorf("%q: %t", repository, got)
		}
	}
}

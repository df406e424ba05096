package devcluster

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// assetsFolder has the programs that Build made, but for some, and kube-apiserver says that it has a version, unless that is empty.
func assetsFolder(t *testing.T, version string, without ...program) string {
	t.Helper()
	built, err := Build(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for _, p := range inAssets {
		if err := os.Symlink(built.pathOf(p), filepath.Join(folder, executable(p.name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range without {
		if err := os.Remove(filepath.Join(folder, executable(p.name))); err != nil {
			t.Fatal(err)
		}
	}
	if version != "" {
		script := filepath.Join(folder, APIServer)
		if err := os.Remove(script); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(script, []byte("#!/bin/sh\necho Kubernetes "+version+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestBuild_UsesProgramsOfEnvtest(t *testing.T) {
	own, err := Build(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	folder, cache := assetsFolder(t, "v1.37.9"), t.TempDir()
	t.Setenv(assetsVariable, folder)
	t.Setenv(cacheVariable, cache)
	module, err := controlPlane.locate(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// What envtest lacks is there, so that this test need not build it.
	target := filepath.Join(cache, "devcluster", assets{folder, "v1.37.9"}.key(module))
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own.ControllerManager, filepath.Join(target, executable(ControllerManager))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := Build(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Version != "v1.37.9" || filepath.Dir(got.APIServer) != target {
			t.Errorf("%+v", got)
		}
		if path, err := FindKubectl(t.Context(), ""); err != nil || path != filepath.Join(folder, kubectlName) {
			t.Errorf("kubectl is %s, %v", path, err)
		}
		if to, err := os.Readlink(got.APIServer); err != nil || to != filepath.Join(folder, APIServer) {
			t.Errorf("kube-apiserver is %s, %v", to, err)
		}
	}
}

func TestFindAssets_RefusesWhatCantTakeTheirPlace(t *testing.T) {
	for name, c := range map[string]struct {
		folder, says string
	}{
		"another minor version": {assetsFolder(t, "v1.30.2"), "has kube-apiserver v1.30.2 instead of v1.37: run setup-envtest use 1.37.x"},
		"no version":            {assetsFolder(t, "unknown"), "has kube-apiserver unknown instead of v1.37"},
		"no etcd":               {assetsFolder(t, "", etcd), "has no etcd"},
		"no folder":             {"/nonexistent", "has no etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(assetsVariable, c.folder)
			if a, err := findAssets(t.Context(), "v1.37.2"); a != (assets{}) || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v, %v", a, err)
			}
			var progress bytes.Buffer
			if _, err := Build(t.Context(), &progress); err != nil || progress.Len() != 0 { // those of the source are there
				t.Errorf("%v %s", err, &progress)
			}
		})
	}
	t.Setenv(assetsVariable, assetsFolder(t, "v1.36.1"))
	if a, err := findAssets(t.Context(), "v1.37.2"); a != (assets{}) || err == nil {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := findAssets(t.Context(), "v1.36.3"); a.version != "v1.36.1" || err != nil { // refused for another version only
		t.Errorf("%+v, %v", a, err)
	}
	t.Setenv(assetsVariable, "")
	if a, err := findAssets(t.Context(), "v1.37.2"); a != (assets{}) || err != nil {
		t.Errorf("%+v, %v", a, err)
	}
}

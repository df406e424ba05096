package download

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/tools/setup-envtest/remote"

	"github.com/gleaner-dev/gleaner/devcluster/download/downloadtest"
)

func source(m *downloadtest.Mirror) Source {
	return Source{Index: m.IndexURL(), Releases: m.ReleasesURL()}
}

func TestFetch_TakesTheVersionOrTheNewestWithItsMinorVersion(t *testing.T) {
	m := downloadtest.New(t)
	for _, version := range []string{"v1.36.9", "v1.37.0", "v1.37.2", "v1.37.5", "v1.38.0"} {
		m.Add(t, version, inArchive...)
	}
	for wanted, want := range map[string]string{"v1.37.2": "v1.37.2", "v1.37.3": "v1.37.5", "v1.36.1": "v1.36.9"} {
		folder := filepath.Join(t.TempDir(), "programs")
		var progress bytes.Buffer
		version, err := source(m).Fetch(t.Context(), wanted, folder, &progress)
		if err != nil || version != want || VersionIn(folder) != want || !strings.Contains(progress.String(), "downloading etcd, kube-apiserver and kubectl "+want) {
			t.Errorf("%s: %s, %v\n%s", wanted, version, err, &progress)
		}
		programs := inArchive
		if runtime.GOOS == "linux" {
			programs = append(programs[:len(programs):len(programs)], controllerManager)
		}
		for _, name := range programs {
			if text, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(text) != name+" "+want {
				t.Errorf("%s is %q, %v", name, text, err)
			}
			if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Mode().Perm()&0o100 == 0 {
				t.Errorf("%s can't be run: %v", name, err)
			}
		}
	}
}

func TestFetch_UnverifiedOrIncompletePrograms_AreNotUsed(t *testing.T) {
	for want, change := range map[string]func(*downloadtest.Mirror){
		"checksum mismatch": func(m *downloadtest.Mirror) {
			for name := range m.Files {
				if strings.HasSuffix(name, ".tar.gz") {
					m.Files[name] = append(m.Files[name], 0)
				}
			}
		},
		"has no programs of Kubernetes 1.37 for": func(m *downloadtest.Mirror) { m.Index.Reset() },
		"has no programs of Kubernetes 1.37 for " + runtime.GOOS: func(m *downloadtest.Mirror) { // no checksum
			text := m.Index.String()
			m.Index.Reset()
			before, after, _ := strings.Cut(text, "hash: ")
			_, after, _ = strings.Cut(after, "\n")
			m.Index.WriteString(before + "hash: ''\n" + after)
		},
		"404":                     func(m *downloadtest.Mirror) { clear(m.Files) },
		"the archive has no etcd": func(m *downloadtest.Mirror) { m.Index.Reset(); m.Add(t, "v1.37.2", "kubectl", "kube-apiserver") },
	} {
		m := downloadtest.New(t)
		m.Add(t, "v1.37.2", inArchive...)
		change(m)
		expectNothing(t, m, want)
	}
	if runtime.GOOS != "linux" {
		return
	}
	m := downloadtest.New(t)
	m.Add(t, "v1.37.2", inArchive...)
	m.Files[m.ReleasePath("v1.37.2")] = []byte("another program")
	expectNoControllerManager(t, m, "and the published one is")
	delete(m.Files, m.ReleasePath("v1.37.2")+".sha256")
	expectNoControllerManager(t, m, "404")
}

// expectNoControllerManager expects the other programs, and the reason.
func expectNoControllerManager(t *testing.T, m *downloadtest.Mirror, want string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "programs")
	var progress bytes.Buffer
	version, err := source(m).Fetch(t.Context(), "v1.37.2", folder, &progress)
	if err != nil || version != "v1.37.2" || !strings.Contains(progress.String(), "without kube-controller-manager: ") || !strings.Contains(progress.String(), want) {
		t.Errorf("%s, %v\n%s", version, err, &progress)
	}
	if _, err := os.Stat(filepath.Join(folder, controllerManager)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("kube-controller-manager is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "etcd")); err != nil {
		t.Error(err)
	}
}

// expectNothing expects an error, and no folder.
func expectNothing(t *testing.T, m *downloadtest.Mirror, want string) {
	t.Helper()
	parent := t.TempDir()
	version, err := source(m).Fetch(t.Context(), "v1.37.2", filepath.Join(parent, "programs"), &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), want) || version != "" {
		t.Errorf("%s, got error %v, want one with %q", version, err, want)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLimited_RefusesMoreThanIsLeft(t *testing.T) {
	var to bytes.Buffer
	l := &limited{&to, 3}
	if _, err := l.Write([]byte("abc")); err != nil {
		t.Error(err)
	}
	if n, err := l.Write([]byte("d")); err == nil || n != 0 || to.String() != "abc" {
		t.Errorf("wrote %d, %v: %s", n, err, &to)
	}
}

func TestDefaultIndex_IsThatOfSetupEnvtest(t *testing.T) {
	if remote.DefaultIndexURL != DefaultIndex {
		t.Errorf("it is %s", remote.DefaultIndexURL)
	}
}

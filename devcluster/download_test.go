package devcluster

import (
	"bytes"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster/download"
	"github.com/gleaner-dev/gleaner/devcluster/download/downloadtest"
)

func TestBuild_UsesDownloadedPrograms_WithoutAskingAgain(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("kube-controller-manager is published for Linux only")
	}
	m := downloadtest.New(t)
	m.Add(t, "v1.37.0", "etcd", "kube-apiserver", "kubectl")
	t.Setenv(cacheVariable, t.TempDir())
	t.Setenv(assetsVariable, "")
	for range 2 {
		o := Options{BasicControllers: true, Download: download.Source{Index: m.IndexURL(), Releases: m.ReleasesURL()}}
		bin, err := o.build(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if bin.Version != "v1.37.0" || filepath.Base(bin.ControllerManager) != ControllerManager || !strings.HasPrefix(filepath.Base(filepath.Dir(bin.Etcd)), "envtest-v1.37.2-") {
			t.Errorf("%+v", bin)
		}
		if !slices.Equal(o.Controllers, basicControllerNames) {
			t.Errorf("its controllers are %v", o.Controllers)
		}
		m.Close()
	}
}

func TestFind_WithoutAnAnswer_ProgramsAreToBeBuilt(t *testing.T) {
	m := downloadtest.New(t)
	m.Close()
	t.Setenv(cacheVariable, t.TempDir())
	t.Setenv(assetsVariable, "")
	module, err := controlPlane.locate(t.Context(), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := module.find(t.Context(), []program{etcd}, download.Source{Index: m.IndexURL()}, &bytes.Buffer{})
	if err != nil || p.downloaded || filepath.Base(p.folder) != module.key || p.why == nil || !strings.Contains(p.why.Error(), "read the index of envtest") {
		t.Errorf("%+v, %v", p, err)
	}
}

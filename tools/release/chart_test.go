package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

func TestRelease_Chart_HasTheVersionAndTheImageByItsDigest(t *testing.T) {
	r := newRelease(t)
	files := written(t, r)
	released, err := loader.LoadArchive(bytes.NewReader(files["gleaner-1.2.3.tgz"]))
	if err != nil {
		t.Fatal(err)
	}
	if m := released.Metadata; m.Name != "gleaner" || m.Version != "1.2.3" || m.AppVersion != "v1.2.3" {
		t.Errorf("it is %s %s with %s", m.Name, m.Version, m.AppVersion)
	}
	image, _ := released.Values["image"].(map[string]any)
	if image["repository"] != defaultImage || image["digest"] != digest {
		t.Errorf("its image is %v", image)
	}
	sources, err := loader.LoadDir(filepath.Join(r.root, chartFolder))
	if err != nil {
		t.Fatal(err)
	}
	names := func(files []*common.File) (names []string) {
		for _, f := range files {
			names = append(names, f.Name)
		}
		slices.Sort(names)
		return names
	}
	if got, want := names(released.Raw), names(sources.Raw); len(want) < 30 || !slices.Equal(got, want) {
		t.Errorf("its files are %v, want %v", got, want)
	}
}

func TestReplaceLines_RefusesWhatItDoesNotFindOnce(t *testing.T) {
	for text, ok := range map[string]bool{"version: 1 # make\nname: x\n": true, "name: x\n": false, "version: 1\nversion: 2\n": false, "  version: 1\n": false} {
		var got []byte
		err := replaceLines([]byte(text), map[string]string{"version": "3"}, func(text []byte) { got = text })
		if (err == nil) != ok || ok && string(got) != "version: 3\nname: x\n" {
			t.Errorf("%q: %v, %q", text, err, got)
		}
	}
}

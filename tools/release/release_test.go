package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

const (
	digest  = "sha256:00000000000000000000000000000000000000000000000000000000000000aa"
	program = "package main\n\nvar version string\n\nfunc main() { println(\"gleaner \" + version) }\n"
	changes = "# Changelog\n\n## Unreleased\n\n- not yet, see [docs](docs/a.md)\n\n## v1.2.3\n\n- a [page](docs/a.md#b)\n\n## v1.2.2\n\n- older\n"
)

// newRelease returns a release of a small program with Gleaner's manifests, in new folders.
func newRelease(t *testing.T) *release {
	t.Helper()
	root := t.TempDir()
	for _, part := range []string{"config", "crds/manifests"} {
		if err := os.CopyFS(filepath.Join(root, part), os.DirFS(filepath.Join("../..", part))); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"LICENSE": "Apache", "CHANGELOG.md": changes, "go.mod": "module example.com/gleaner\n\ngo 1.24\n", "main.go": program,
		"image/index.json": `{"schemaVersion": 2, "manifests": [{"digest": "` + digest + `"}]}`,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &release{root: root, folder: filepath.Join(root, "dist"), image: filepath.Join(root, "image"), version: "v1.2.3", revision: "abc", command: "."}
	if err := r.parse(runtime.GOOS + "/" + runtime.GOARCH + ",windows/amd64"); err != nil {
		t.Fatal(err)
	}
	return r
}

// written writes a release and returns its files.
func written(t *testing.T, r *release) map[string][]byte {
	t.Helper()
	if err := r.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(r.folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(r.folder, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestRelease_IsReproducible(t *testing.T) {
	first, second := written(t, newRelease(t)), written(t, newRelease(t))
	if len(first) != len(second) {
		t.Errorf("%d files, and then %d", len(first), len(second))
	}
	for name, data := range first {
		if !bytes.Equal(data, second[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestRelease_ManifestsHaveTheImageByDigest(t *testing.T) {
	files := written(t, newRelease(t))
	for name := range overlays {
		text := string(files[name])
		if strings.Contains(text, "kind: Deployment") != strings.Contains(text, "image: "+defaultImage+"@"+digest) && name != "install-node.yaml" {
			t.Errorf("%s has not the digest", name)
		}
		if strings.Contains(text, ":development") || !strings.HasPrefix(text, "# Gleaner v1.2.3, config/") {
			t.Errorf("%s: %.100s", name, text)
		}
	}
	if text := string(files["install-node.yaml"]); !strings.Contains(text, "image: "+defaultImage+"@"+digest) {
		t.Error("install-node.yaml has not the digest")
	}
	r := newRelease(t)
	r.registry = "registry.example.com/gleaner"
	if text := string(written(t, r)["install.yaml"]); !strings.Contains(text, "image: registry.example.com/gleaner@"+digest) {
		t.Error("install.yaml has not the repository")
	}
}

func TestRelease_ChecksumsAndProvenanceCoverAllFiles(t *testing.T) {
	files := written(t, newRelease(t))
	var s statement
	if err := json.Unmarshal(files["provenance.json"], &s); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if name == "SHA256SUMS" || name == "provenance.json" {
			continue
		}
		want := fmt.Sprintf("%x", sha256.Sum256(data))
		if !strings.Contains(string(files["SHA256SUMS"]), want+"  "+name+"\n") {
			t.Errorf("SHA256SUMS has not %s", name)
		}
		if !slices.ContainsFunc(s.Subject, func(x subject) bool { return x.Name == name && x.Digest["sha256"] == want }) {
			t.Errorf("provenance.json has not %s", name)
		}
	}
	if last := s.Subject[len(s.Subject)-1]; last.Name != defaultImage || "sha256:"+last.Digest["sha256"] != digest {
		t.Errorf("the image is %+v", last)
	}
	if d := s.Predicate.BuildDefinition.ResolvedDependencies; len(d) != 1 || d[0].Digest["gitCommit"] != "abc" {
		t.Errorf("made of %+v", d)
	}
}

func TestRelease_BillOfMaterialsNamesProgramAndToolchain(t *testing.T) {
	r := newRelease(t)
	files := written(t, r)
	var bom struct {
		BOMFormat string `json:"bomFormat"`
		Metadata  struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version string }
	}
	name := archive{name: "gleaner_v1.2.3_windows_amd64.zip"}.sbomName()
	if err := json.Unmarshal(files[name], &bom); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Name != "example.com/gleaner" || bom.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("%+v", bom)
	}
	if len(bom.Components) != 1 || bom.Components[0].Name != "std" {
		t.Errorf("components: %+v", bom.Components)
	}
	if text := string(files[name]); strings.Contains(text, os.TempDir()) {
		t.Errorf("it names a folder of this machine: %s", text)
	}
}

func TestRelease_ArchivesHaveProgramAndLicense(t *testing.T) {
	data := written(t, newRelease(t))["gleaner_v1.2.3_windows_amd64.zip"]
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"LICENSE", "gleaner.exe"}) {
		t.Errorf("it has %q", names)
	}
}

// krew itself installs the plugin, from the archive instead of the address.
func TestRelease_KrewInstallsThePlugin(t *testing.T) {
	r := newRelease(t)
	files := written(t, r)
	var plugin index.Plugin
	if err := yaml.UnmarshalStrict(files["gleaner.yaml"], &plugin); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("gleaner_v1.2.3_%s_%s.tar.gz", runtime.GOOS, runtime.GOARCH)
	if uri := plugin.Spec.Platforms[0].URI; uri != downloads+"v1.2.3/"+name {
		t.Errorf("its address is %s", uri)
	}
	krew := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "tool", "krew", "install", "--manifest="+filepath.Join(r.folder, "gleaner.yaml"), "--archive="+filepath.Join(r.folder, name))
	install.Env = append(os.Environ(), "KREW_ROOT="+krew, "KREW_NO_UPGRADE_CHECK=1", "GOWORK=off")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(krew, "bin", "kubectl-gleaner")).CombinedOutput()
	if err != nil || string(out) != "gleaner v1.2.3\n" {
		t.Errorf("it prints %q, %v", out, err)
	}
}

func TestRelease_NotesAreThoseOfTheVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":      "# Gleaner v1.2.3\n\n- a [page](" + repository + "/blob/v1.2.3/docs/a.md#b)\n",
		"v1.3.0-rc.1": "# Gleaner v1.3.0-rc.1\n\n- not yet, see [docs](" + repository + "/blob/v1.3.0-rc.1/docs/a.md)\n",
	} {
		r := newRelease(t)
		r.version = version
		if got, err := r.notes(); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
}

func TestRelease_RefusesWhatIsIncomplete(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*release)
		says   string
	}{
		"no notes": {func(r *release) { r.version = "v1.9.0" }, `CHANGELOG.md has no section "## v1.9.0": rename the section Unreleased`},
		"no image": {func(r *release) { r.image = "nothing" }, "read the image: open nothing"},
		"no code":  {func(r *release) { r.command = "./nothing" }, "build for " + runtime.GOOS},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelease(t)
			c.change(r)
			if err := r.write(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(r.folder); !os.IsNotExist(err) {
				t.Errorf("it has written something: %v", err)
			}
		})
	}
	for _, version := range []string{"", "1.2.3", "v1.2", "v01.2.3", "development"} {
		r := release{version: version}
		if err := r.parse("linux/amd64"); err == nil || !strings.Contains(err.Error(), "make release VERSION=v1.2.3") {
			t.Errorf("version %q: %v", version, err)
		}
	}
	r := release{version: "v1.2.3"}
	if err := r.parse("plan9/amd64"); err == nil || !strings.Contains(err.Error(), "use one of linux/amd64") {
		t.Error(err)
	}
}

// What an earlier release wrote goes, and nothing else that is in the folder.
func TestRelease_RemovesFilesOfAnEarlierVersionOnly(t *testing.T) {
	r := newRelease(t)
	written(t, r)
	for _, name := range []string{"mine.txt", "gleaner_v1.2.3_mine"} {
		if err := os.WriteFile(filepath.Join(r.folder, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.version = "v1.2.4-rc.1"
	files := written(t, r)
	if string(files["mine.txt"]) != "mine" || string(files["gleaner_v1.2.3_mine"]) != "mine" {
		t.Error("it has removed what is not its own")
	}
	delete(files, "gleaner_v1.2.3_mine")
	for name := range files {
		if strings.Contains(name, "v1.2.3") {
			t.Errorf("%s is left", name)
		}
	}
}

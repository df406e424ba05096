package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gleaner-dev/gleaner/policies/source"
)

// registryFor serves a registry on this machine, and returns its name. It knows
// one user; nobody, if that has no name, is asked who they are.
func registryFor(t *testing.T, user string) string {
	t.Helper()
	behind := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := r.BasicAuth(); user != "" && (name != user || password != "secret") {
			w.Header().Set("WWW-Authenticate", `Basic realm="modules"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// notLoggedIn makes sure that a test sees nothing of who runs it.
func notLoggedIn(t *testing.T) (dockerConfig string) {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("DOCKER_CONFIG", folder)
	t.Setenv("REGISTRY_AUTH_FILE", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	return filepath.Join(folder, "config.json")
}

// pushed pushes, and returns what is said to write in the resource.
func pushed(t *testing.T, args ...string) (image, sum string) {
	t.Helper()
	out, err := execute(t, append([]string{"module", "push"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(out, "image: %s\nsha256: %s\n", &image, &sum); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	return image, sum
}

// pulled fetches a module as the operator does.
func pulled(t *testing.T, s source.Source) source.Fetched {
	t.Helper()
	f, err := source.New(source.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	s.Private = true
	got, err := f.Fetch(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestModulePush_Rego_CanBePulled(t *testing.T) {
	notLoggedIn(t)
	host := registryFor(t, "")
	policy := writeFile(t, "policy.rego", orphanRego)
	image, sum := pushed(t, policy, host+"/policies/orphan:v1")
	got := pulled(t, source.Source{Language: source.Rego, Image: image, SHA256: sum})
	want := source.Fetched{
		Files: []source.File{{Name: "policy.rego", Data: []byte(orphanRego)}}, Digest: sum, Pinned: true, Origin: image,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	byTag := pulled(t, source.Source{Language: source.Rego, Image: host + "/policies/orphan:v1"})
	if byTag.Pinned || byTag.Pin != "image: "+image {
		t.Errorf("by its tag it is pinned: %t, and to pin it takes %s", byTag.Pinned, byTag.Pin)
	}
	if again, _ := pushed(t, policy, host+"/policies/orphan"); again != image {
		t.Errorf("pushed again, it is %s", again)
	}
	if got := pulled(t, source.Source{Language: source.Rego, Image: host + "/policies/orphan:sha256-" + sum[:16]}); got.Digest != sum {
		t.Error("without a tag, it gets none of its digest")
	}
}

func TestModulePush_Directory_OmitsTests(t *testing.T) {
	notLoggedIn(t)
	folder := t.TempDir()
	for name, text := range map[string]string{
		"policy.rego":      orphanRego,
		"more.rego":        "package gleaner\n\nlater := 1\n",
		"policy_test.rego": "package gleaner_test\n\ntest_nothing if true\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	image, sum := pushed(t, folder, registryFor(t, "")+"/policies/orphan")
	got := pulled(t, source.Source{Language: source.Rego, Image: image, SHA256: sum})
	names := []string{}
	for _, f := range got.Files {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff([]string{"more.rego", "policy.rego"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestModulePush_Go_CanBePulledWithCredentials(t *testing.T) {
	config := notLoggedIn(t)
	host := registryFor(t, "me")
	module := filepath.Join(t.TempDir(), "keep-data.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", module, ".")
	build.Dir = "../../sdk/go/examples/keep-data"
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, err := execute(t, "module", "push", module, host+"/modules/keep-data:v1")
	if err == nil {
		t.Fatal("somebody unknown may push")
	}
	containsAll(t, err.Error(), "401 Unauthorized", "docker login "+host)

	login := []byte(fmt.Sprintf(`{"auths": {%q: {"username": "me", "password": "secret"}}}`, host))
	if err := os.WriteFile(config, login, 0o600); err != nil {
		t.Fatal(err)
	}
	image, sum := pushed(t, module, host+"/modules/keep-data:v1")
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	got := pulled(t, source.Source{Language: source.Wasm, Image: image, SHA256: sum, PullSecrets: [][]byte{login}})
	if diff := cmp.Diff(source.Digest([]source.File{{Data: code}}), got.Digest); diff != "" {
		t.Error(diff)
	}
}

func TestModulePush_Invalid_PushesNothing(t *testing.T) {
	notLoggedIn(t)
	good := writeFile(t, "policy.rego", orphanRego)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no policy":    {[]string{writeFile(t, "bad.rego", "package other\n"), registryFor(t, "") + "/a"}, "package gleaner"},
		"text":         {[]string{writeFile(t, "a.txt", "x"), registryFor(t, "") + "/a"}, "is neither WebAssembly"},
		"nobody there": {[]string{good, strings.TrimPrefix(closed.URL, "http://") + "/a"}, "connection refused"},
		"one name for two": {[]string{good, writeFile(t, "policy.rego", "package gleaner\n\nlater := 1\n"), registryFor(t, "") + "/a"},
			"duplicate file name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, append([]string{"module", "push"}, c.args...)...)
			if err == nil {
				t.Fatal("nothing is wrong with it")
			}
			containsAll(t, err.Error(), c.says)
		})
	}
	for name, args := range map[string][]string{
		"nowhere":       {good},
		"no registry":   {good, "modules/a"},
		"a scheme":      {good, "https://ghcr.io/a"},
		"a digest":      {good, "ghcr.io/a@sha256:" + strings.Repeat("00", 32)},
		"little memory": {good, "ghcr.io/a", "--memory", "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, append([]string{"module", "push"}, args...)...)
			wantUsageError(t, err)
		})
	}
}

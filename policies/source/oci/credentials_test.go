package oci_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

func reference(t *testing.T, s string) oci.Reference {
	t.Helper()
	r, err := oci.ParseReference(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func auth(user string) string {
	return fmt.Sprintf(`{"auth": %q}`, base64.StdEncoding.EncodeToString([]byte(user+":pass:word")))
}

func TestDockerConfig_GivesTheMostSpecificCredentialsFirst(t *testing.T) {
	c, err := oci.ParseDockerConfig([]byte(`{"auths": {
		"ghcr.io": ` + auth("host") + `,
		"ghcr.io/org": ` + auth("org") + `,
		"https://ghcr.io/org/deep/": ` + auth("deep") + `,
		"*.example.com": ` + auth("wildcard") + `,
		"eu.example.com:5000": {"username": "plain", "password": "x"},
		"*.example.com:5000": ` + auth("wildcard") + `,
		"[::1]:5000": ` + auth("six") + `,
		"https://index.docker.io/v1/": {"identitytoken": "t"},
		"empty.example.org": {}
	}}`))
	if err != nil {
		t.Fatal(err)
	}
	of := func(users ...string) (found []oci.Credential) {
		for _, u := range users {
			found = append(found, oci.Credential{Username: u, Password: "pass:word"})
		}
		return found
	}
	for text, want := range map[string][]oci.Credential{
		"ghcr.io/org/deep/a":     of("deep", "org", "host"),
		"ghcr.io/org":            of("org", "host"),
		"ghcr.io/organisation":   of("host"), // a path ends where a part of it does
		"ghcr.io:443/org":        nil,
		"eu.example.com/a":       of("wildcard"),
		"a.eu.example.com/a":     nil, // a * is for one part
		"example.com/a":          nil,
		"eu.example.com:5000/a":  append([]oci.Credential{{Username: "plain", Password: "x"}}, of("wildcard")...),
		"[::1]:5000/a":           of("six"),
		"docker.io/alpine":       {{IdentityToken: "t"}},
		"index.docker.io/me/it":  {{IdentityToken: "t"}},
		"empty.example.org/a":    nil,
		"evilghcr.io/org/deep/a": nil,
	} {
		if diff := cmp.Diff(want, c.CredentialsFor(reference(t, text))); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestParseDockerConfig_ShowsNoSecretInItsErrors(t *testing.T) {
	for _, text := range []string{`secret`, `{"auths": "secret"}`, `{"auths": {"ghcr.io": {"auth": "secret!"}}}`, `{"auths": {"ghcr.io": {"auth": "c2VjcmV0"}}}`} {
		_, err := oci.ParseDockerConfig([]byte(text))
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// alone makes sure that a test sees nothing of who runs it.
func alone(t *testing.T) (home string) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, "")
	}
	return home
}

func put(t *testing.T, mode os.FileMode, text string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestUserCredential_IsThatOfDockerOrPodman(t *testing.T) {
	home := alone(t)
	ask := func() oci.Credential {
		t.Helper()
		c, err := oci.UserCredential(t.Context(), reference(t, "ghcr.io/a"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if got := ask(); got != (oci.Credential{}) {
		t.Errorf("who has not logged in is %+v", got)
	}
	file := func(user string) string { return `{"auths": {"ghcr.io": ` + auth(user) + `}}` }
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(home, "run"))
	put(t, 0o600, file("podman"), home, "run", "containers", "auth.json")
	if got := ask(); got.Username != "podman" {
		t.Errorf("got %+v", got)
	}
	put(t, 0o600, file("docker"), home, ".docker", "config.json")
	if got := ask(); got.Username != "docker" {
		t.Errorf("got %+v", got)
	}
	t.Setenv("DOCKER_CONFIG", filepath.Join(home, "other"))
	put(t, 0o600, file("configured"), home, "other", "config.json")
	if got := ask(); got.Username != "configured" {
		t.Errorf("got %+v", got)
	}
	put(t, 0o600, `{`, home, "other", "config.json")
	if _, err := oci.UserCredential(t.Context(), reference(t, "ghcr.io/a")); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestUserCredential_UsesHelper(t *testing.T) {
	home := alone(t)
	t.Setenv("PATH", filepath.Join(home, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	helper := func(script string) {
		put(t, 0o700, "#!/bin/sh\nread -r server\n"+script+"\n", home, "bin", "docker-credential-test")
	}
	put(t, 0o600, `{"credHelpers": {"ghcr.io": "test"}, "credsStore": "../evil"}`, home, ".docker", "config.json")

	helper(`echo "{\"Username\": \"$1\", \"Secret\": \"for $server\"}"`)
	got, err := oci.UserCredential(t.Context(), reference(t, "ghcr.io/a"))
	if diff := cmp.Diff(oci.Credential{Username: "get", Password: "for ghcr.io"}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	helper(`echo '{"Username": "<token>", "Secret": "t"}'`)
	got, err = oci.UserCredential(t.Context(), reference(t, "ghcr.io/a"))
	if diff := cmp.Diff(oci.Credential{IdentityToken: "t"}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	helper(`echo 'credentials not found in native keychain'; exit 1`)
	if got, err = oci.UserCredential(t.Context(), reference(t, "ghcr.io/a")); err != nil || got != (oci.Credential{}) {
		t.Errorf("none is kept: %+v, %v", got, err)
	}
	helper(`echo 'secret'; exit 3`)
	if _, err = oci.UserCredential(t.Context(), reference(t, "ghcr.io/a")); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("it breaks down: %v", err)
	}
	if _, err = oci.UserCredential(t.Context(), reference(t, "quay.io/a")); err == nil || !strings.Contains(err.Error(), "invalid name") {
		t.Errorf("a name that leads elsewhere: %v", err)
	}
}

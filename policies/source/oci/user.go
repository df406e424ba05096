package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// helperForm is the form of a name of a program that keeps credentials: it is
// made part of a command.
var helperForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// dockerHubKey is what Docker Hub's credentials are kept under by programs.
const dockerHubKey = "https://index.docker.io/v1/"

// UserCredential is what the user of this machine has for a reference from
// docker login or podman login: nobody's, if they have not logged in.
func UserCredential(ctx context.Context, r Reference) (Credential, error) {
	file, data, err := readUserConfig()
	if err != nil || data == nil {
		return Credential{}, err
	}
	c, err := ParseDockerConfig(data)
	if err != nil {
		return Credential{}, fmt.Errorf("read %s: %w", file, err)
	}
	if helper := c.helper(r); helper != "" {
		return askHelper(ctx, helper, r)
	}
	if found := c.For(r); len(found) != 0 {
		return found[0], nil
	}
	return Credential{}, nil
}

// readUserConfig reads the first file there is of those that docker and podman
// use: none is no error.
func readUserConfig() (file string, data []byte, err error) {
	var files []string
	if folder := os.Getenv("DOCKER_CONFIG"); folder != "" {
		files = append(files, filepath.Join(folder, "config.json"))
	} else if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".docker", "config.json"))
	}
	if named := os.Getenv("REGISTRY_AUTH_FILE"); named != "" {
		files = append(files, named)
	}
	if folder := os.Getenv("XDG_RUNTIME_DIR"); folder != "" {
		files = append(files, filepath.Join(folder, "containers", "auth.json"))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			return file, data, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", nil, fmt.Errorf("read credentials: %w", err)
		}
	}
	return "", nil, nil
}

// helper is the program that keeps the credentials for a reference, if any does.
func (c DockerConfig) helper(r Reference) string {
	keys := []string{r.Registry}
	if r.isDockerHub() {
		keys = append(slices.Clone(hubKeys), dockerHubKey)
	}
	for _, k := range keys {
		if program, ok := c.helpers[k]; ok {
			return program
		}
	}
	return c.store
}

// askHelper runs such a program, as docker does.
func askHelper(ctx context.Context, helper string, r Reference) (Credential, error) {
	if !helperForm.MatchString(helper) {
		return Credential{}, fmt.Errorf("ask for credentials: %q is no name of a credential helper", helper)
	}
	key := r.Registry
	if r.isDockerHub() {
		key = dockerHubKey
	}
	cmd := exec.CommandContext(ctx, "docker-credential-"+helper, "get")
	cmd.Stdin = strings.NewReader(key)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		// The protocol has this one way to say that there are none.
		if strings.Contains(out.String(), "credentials not found in native keychain") {
			return Credential{}, nil
		}
		return Credential{}, fmt.Errorf("ask docker-credential-%s for the credentials for %s: %w", helper, key, err)
	}
	var given struct{ Username, Secret string }
	if json.Unmarshal(out.Bytes(), &given) != nil { // the error may quote the secret
		return Credential{}, fmt.Errorf("ask docker-credential-%s for the credentials for %s: it answers no JSON", helper, key)
	}
	if given.Username == "<token>" {
		return Credential{IdentityToken: given.Secret}, nil
	}
	return Credential{Username: given.Username, Password: given.Secret}, nil
}

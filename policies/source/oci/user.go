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

// helperPattern is the allowed form of the name of a credential helper, since it
// becomes part of a command.
var helperPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// dockerHubKey is the key of Docker Hub in credential helpers.
const dockerHubKey = "https://index.docker.io/v1/"

// UserCredential returns the credential that the user of this machine has from
// docker login or podman login, or the anonymous one.
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
		return runHelper(ctx, helper, r)
	}
	if found := c.CredentialsFor(r); len(found) != 0 {
		return found[0], nil
	}
	return Credential{}, nil
}

// readUserConfig reads the first existing configuration file of docker and podman.
// It is not an error if there is none.
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

// helper returns the credential helper for a reference, if there is one.
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
	return c.defaultHelper
}

// runHelper runs a credential helper, as docker does.
func runHelper(ctx context.Context, helper string, r Reference) (Credential, error) {
	if !helperPattern.MatchString(helper) {
		return Credential{}, fmt.Errorf("run credential helper: invalid name %q", helper)
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
		// This is how the protocol reports that there are no credentials.
		if strings.Contains(out.String(), "credentials not found in native keychain") {
			return Credential{}, nil
		}
		return Credential{}, fmt.Errorf("run docker-credential-%s for %s: %w", helper, key, err)
	}
	var given struct{ Username, Secret string }
	if json.Unmarshal(out.Bytes(), &given) != nil { // the error may quote the secret
		return Credential{}, fmt.Errorf("run docker-credential-%s for %s: the output is not JSON", helper, key)
	}
	if given.Username == "<token>" {
		return Credential{IdentityToken: given.Secret}, nil
	}
	return Credential{Username: given.Username, Password: given.Secret}, nil
}

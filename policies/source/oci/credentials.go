package oci

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
)

// Credential is what a registry knows a client by. The zero value is nobody.
type Credential struct {
	Username string
	Password string
	// IdentityToken is exchanged for tokens by OAuth2, in place of a password.
	IdentityToken string
	// RegistryToken is sent to the registry as it is.
	RegistryToken string
}

// DockerConfig are the credentials of a file that docker login writes, which is
// also what a Secret of the type kubernetes.io/dockerconfigjson holds.
type DockerConfig struct {
	entries []configEntry
	store   string            // a program that keeps them all
	helpers map[string]string // programs that keep those of one registry
}

type configEntry struct {
	host, path string // as written: with wildcards, without scheme
	credential Credential
}

// hubKeys are names under which credentials of Docker Hub are kept.
var hubKeys = []string{"docker.io", "index.docker.io", "registry-1.docker.io"}

// ParseDockerConfig reads such a file. The error shows nothing of it.
func ParseDockerConfig(data []byte) (DockerConfig, error) {
	var file struct {
		Auths map[string]struct {
			Username      string `json:"username"`
			Password      string `json:"password"`
			Auth          string `json:"auth"`
			IdentityToken string `json:"identitytoken"`
			RegistryToken string `json:"registrytoken"`
		} `json:"auths"`
		CredsStore  string            `json:"credsStore"`
		CredHelpers map[string]string `json:"credHelpers"`
	}
	if json.Unmarshal(data, &file) != nil { // the error may quote a secret
		return DockerConfig{}, errors.New("it is no JSON of the form {\"auths\": {\"registry\": {\"auth\": …}}}")
	}
	c := DockerConfig{store: file.CredsStore, helpers: file.CredHelpers}
	for key, auth := range file.Auths {
		entry := configEntry{credential: Credential{
			Username: auth.Username, Password: auth.Password,
			IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
		}}
		entry.host, entry.path = splitKey(key)
		if auth.Auth != "" {
			user, password, ok := decodeAuth(auth.Auth)
			if !ok {
				return DockerConfig{}, errors.New("an auth of it is not the base64 of user:password")
			}
			entry.credential.Username, entry.credential.Password = user, password
		}
		if entry.credential != (Credential{}) {
			c.entries = append(c.entries, entry)
		}
	}
	slices.SortFunc(c.entries, func(a, b configEntry) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), // the most specific first
			cmp.Compare(strings.Count(a.host, "*"), strings.Count(b.host, "*")),
			cmp.Compare(a.host, b.host), cmp.Compare(a.path, b.path))
	})
	return c, nil
}

func decodeAuth(auth string) (user, password string, ok bool) {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(plain), ":")
	return user, strings.Trim(password, "\x00"), ok
}

// splitKey takes the forms apart that docker and the kubelet know: a host, a URL
// that ends in /v1/ or /v2/, and a host with the beginning of a repository.
func splitKey(key string) (host, prefix string) {
	_, after, ok := strings.Cut(key, "://")
	if ok {
		key = after
	}
	host, prefix, _ = strings.Cut(key, "/")
	prefix = strings.Trim(prefix, "/")
	if prefix == "v1" || prefix == "v2" {
		prefix = ""
	}
	return host, prefix
}

// For returns the credentials for a reference, the most specific first.
func (c DockerConfig) For(r Reference) []Credential {
	var found []Credential
	for _, e := range c.entries {
		if e.matches(r) {
			found = append(found, e.credential)
		}
	}
	return found
}

func (e configEntry) matches(r Reference) bool {
	if e.path != "" && r.Repository != e.path && !strings.HasPrefix(r.Repository, e.path+"/") {
		return false
	}
	if r.isDockerHub() {
		return slices.Contains(hubKeys, e.host)
	}
	return matchesHost(e.host, r.Registry)
}

// matchesHost lets a * stand for a part of a name, between two dots, as the
// kubelet does.
func matchesHost(pattern, host string) bool {
	if pattern == host {
		return true
	}
	patterns, parts := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(patterns) != len(parts) {
		return false
	}
	for i, p := range patterns {
		if ok, err := path.Match(p, parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

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

// Credential is a credential for a registry. The zero value is anonymous.
type Credential struct {
	Username string
	Password string
	// IdentityToken is exchanged for tokens by OAuth2, instead of a password.
	IdentityToken string
	// RegistryToken is sent to the registry unchanged.
	RegistryToken string
}

// DockerConfig contains the credentials of a Docker configuration file, which is
// also the content of a Secret of the type kubernetes.io/dockerconfigjson.
type DockerConfig struct {
	entries       []configEntry
	defaultHelper string            // the default credential helper
	helpers       map[string]string // credential helpers by registry
}

type configEntry struct {
	host, path string // as written: with wildcards, without scheme
	credential Credential
}

// hubKeys are the keys of credentials for Docker Hub.
var hubKeys = []string{"docker.io", "index.docker.io", "registry-1.docker.io"}

// ParseDockerConfig parses a Docker configuration file. The error does not contain
// any of it.
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
		return DockerConfig{}, errors.New("it is not JSON of the form {\"auths\": {\"registry\": {\"auth\": …}}}")
	}
	c := DockerConfig{defaultHelper: file.CredsStore, helpers: file.CredHelpers}
	for key, auth := range file.Auths {
		entry := configEntry{credential: Credential{
			Username: auth.Username, Password: auth.Password,
			IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
		}}
		entry.host, entry.path = splitKey(key)
		if auth.Auth != "" {
			user, password, ok := decodeAuth(auth.Auth)
			if !ok {
				return DockerConfig{}, errors.New("an auth is not the base64 of user:password")
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

// splitKey splits the forms of keys that Docker and the kubelet support: a host, a
// URL that ends in /v1/ or /v2/, and a host with a prefix of a repository.
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

// CredentialsFor returns the credentials for a reference, the most specific first.
func (c DockerConfig) CredentialsFor(r Reference) []Credential {
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

// matchesHost matches a host with a pattern in which * matches part of a DNS label,
// as in the kubelet.
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

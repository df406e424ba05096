// Package oci is a client for registries: it pulls manifests and blobs, verifies
// them against their digests, and pushes modules as OCI artifacts. The http.Client
// that it is given defines what it can reach.
//
// It does not unpack or cache content, and has no limits other than those of the
// caller.
package oci

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
)

// Reference identifies an image: by a digest, or by a tag, which can be moved.
type Reference struct {
	Registry   string // host, or host:port
	Repository string
	Tag        string
	Digest     string // "sha256:" and 64 hex digits; takes precedence over the tag
}

var (
	hostPattern       = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
	repositoryPattern = regexp.MustCompile(`^[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)
	tagPattern        = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestPattern     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// maxReference is the maximum length of a reference, in bytes.
const maxReference = 512

// ParseReference parses registry/repository, with :tag, @sha256:digest or both. The
// error says what to write instead.
func ParseReference(s string) (Reference, error) {
	switch {
	case len(s) > maxReference:
		return Reference{}, fmt.Errorf("it is longer than %d bytes", maxReference)
	case strings.Contains(s, "://"):
		return Reference{}, errors.New("remove the scheme before ://")
	}
	rest, digest, byDigest := strings.Cut(s, "@")
	registry, repository, ok := strings.Cut(rest, "/")
	if !ok || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		return Reference{}, errors.New("start with the registry, such as registry.example.com/repository, or docker.io for Docker Hub")
	}
	repository, tag, byTag := strings.Cut(repository, ":")
	r := Reference{Registry: registry, Repository: repository, Tag: tag, Digest: digest}
	if r.isDockerHub() && !strings.Contains(repository, "/") {
		r.Repository = "library/" + repository
	}
	switch {
	case !hostPattern.MatchString(registry):
		return Reference{}, fmt.Errorf("%q is not a registry: use host or host:port", registry)
	case !repositoryPattern.MatchString(repository):
		return Reference{}, fmt.Errorf("%q is not a repository: use lower case letters, digits and . _ - /", repository)
	case byTag && !tagPattern.MatchString(tag):
		return Reference{}, fmt.Errorf("%q is not a tag: use letters, digits and . _ -", tag)
	case byDigest && !digestPattern.MatchString(digest):
		return Reference{}, fmt.Errorf("%q is not a digest: use sha256: and 64 hex digits in lower case", digest)
	}
	return r, nil
}

// String formats the reference.
func (r Reference) String() string {
	s := r.Registry + "/" + r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// ByDigest returns the reference with this digest and without a tag.
func (r Reference) ByDigest(digest string) Reference {
	return Reference{Registry: r.Registry, Repository: r.Repository, Digest: digest}
}

func (r Reference) isDockerHub() bool {
	return r.Registry == "docker.io" || r.Registry == "index.docker.io"
}

// host returns the host of the registry's API.
func (r Reference) host() string {
	if r.isDockerHub() {
		return "registry-1.docker.io"
	}
	return r.Registry
}

// isLoopback reports whether the registry is on this machine. Plain HTTP is allowed
// for it.
func (r Reference) isLoopback() bool {
	name, _, err := net.SplitHostPort(r.Registry)
	if err != nil {
		name = strings.Trim(r.Registry, "[]")
	}
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.IsLoopback()
}

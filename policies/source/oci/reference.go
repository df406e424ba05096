// Package oci speaks to registries: it pulls manifests and blobs, each verified
// against its digest, and pushes modules as OCI artifacts. What a client may
// reach is the business of the http.Client that it is given.
//
// It unpacks nothing, keeps nothing, and knows no limits but those it is told.
package oci

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
)

// Reference names an image: by a digest, or by a tag that may come to mean
// another one.
type Reference struct {
	Registry   string // host, or host:port
	Repository string
	Tag        string
	Digest     string // "sha256:" and 64 hex digits; if there is one, it counts
}

var (
	hostForm       = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)
	tagForm        = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestForm     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// mostReference is the most bytes that a reference may have.
const mostReference = 512

// ParseReference reads registry/repository, with :tag, @sha256:digest or both.
// The error is for whoever wrote it, and says what to write instead.
func ParseReference(s string) (Reference, error) {
	switch {
	case len(s) > mostReference:
		return Reference{}, fmt.Errorf("it is longer than %d bytes", mostReference)
	case strings.Contains(s, "://"):
		return Reference{}, errors.New("leave out what stands before ://")
	}
	rest, digest, byDigest := strings.Cut(s, "@")
	registry, repository, ok := strings.Cut(rest, "/")
	if !ok || !strings.ContainsAny(registry, ".:") && registry != "localhost" {
		return Reference{}, errors.New("begin with the registry: registry.example.com/repository; that of Docker Hub is docker.io")
	}
	repository, tag, byTag := strings.Cut(repository, ":")
	r := Reference{Registry: registry, Repository: repository, Tag: tag, Digest: digest}
	if r.isDockerHub() && !strings.Contains(repository, "/") {
		r.Repository = "library/" + repository
	}
	switch {
	case !hostForm.MatchString(registry):
		return Reference{}, fmt.Errorf("%q is no name of a registry: use host or host:port", registry)
	case !repositoryForm.MatchString(repository):
		return Reference{}, fmt.Errorf("%q is no name of a repository: use lower case letters, digits and . _ - /", repository)
	case byTag && !tagForm.MatchString(tag):
		return Reference{}, fmt.Errorf("%q is no tag: use letters, digits and . _ -", tag)
	case byDigest && !digestForm.MatchString(digest):
		return Reference{}, fmt.Errorf("%q is no digest: use sha256: and 64 hex digits in lower case", digest)
	}
	return r, nil
}

// String is the reference as it is written.
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

// ByDigest is the reference to what has the digest, whatever its tag.
func (r Reference) ByDigest(digest string) Reference {
	return Reference{Registry: r.Registry, Repository: r.Repository, Digest: digest}
}

func (r Reference) isDockerHub() bool {
	return r.Registry == "docker.io" || r.Registry == "index.docker.io"
}

// host is where the API of the registry is served.
func (r Reference) host() string {
	if r.isDockerHub() {
		return "registry-1.docker.io"
	}
	return r.Registry
}

// isLoopback tells whether the registry is named as one on this machine. Those
// may be spoken to by plain HTTP.
func (r Reference) isLoopback() bool {
	name, _, err := net.SplitHostPort(r.Registry)
	if err != nil {
		name = strings.Trim(r.Registry, "[]")
	}
	address, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && address.IsLoopback()
}

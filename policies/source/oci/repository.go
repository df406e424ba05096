package oci

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"
)

// acceptedManifests are the media types of manifests that are accepted.
var acceptedManifests = strings.Join([]string{
	string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
	string(types.OCIImageIndex), string(types.DockerManifestList),
}, ", ")

// Repository is a client for one repository. It keeps its authorization, and must
// not be used concurrently.
//
// Its errors are a *StatusError, *SizeError, *DigestError or *MalformedError, or
// those of the http.Client.
type Repository struct {
	client     *http.Client
	reference  Reference
	credential Credential

	actions       string // for tokens
	scheme        string
	authorization string // the Authorization header
}

// NewRepository returns a client for the repository of a reference. It uses HTTPS;
// for a registry on this machine it falls back to HTTP.
func NewRepository(client *http.Client, r Reference, c Credential) *Repository {
	return &Repository{client: client, reference: r, credential: c, actions: "pull", scheme: "https"}
}

// Manifest pulls a manifest by tag or digest, and returns its digest. A manifest
// that is pulled by digest is verified.
func (r *Repository) Manifest(ctx context.Context, name string, limit int64) (data []byte, digest string, err error) {
	what := "the manifest " + name
	response, err := r.do(ctx, call{operation: "pull " + what, method: http.MethodGet, path: "/manifests/" + name, accept: acceptedManifests})
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	data, err = read(what, response, limit)
	if err != nil {
		return nil, "", err
	}
	digest = Digest(data)
	if strings.Contains(name, ":") && digest != name {
		return nil, "", &DigestError{Content: what, Want: name, Got: digest}
	}
	return data, digest, nil
}

// Blob pulls a blob of a known size, which limits what is read.
func (r *Repository) Blob(ctx context.Context, digest string, size int64) ([]byte, error) {
	what := "the blob " + digest
	response, err := r.do(ctx, call{operation: "pull " + what, method: http.MethodGet, path: "/blobs/" + digest})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := read(what, response, size)
	if tooLarge := new(SizeError); errors.As(err, &tooLarge) {
		return nil, &DigestError{Content: what, Want: digest, Got: fmt.Sprintf("larger than the %d bytes of the manifest", size)}
	}
	if err != nil {
		return nil, err
	}
	if got := Digest(data); got != digest {
		return nil, &DigestError{Content: what, Want: digest, Got: got}
	}
	return data, nil
}

// Digest returns the digest of content.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func read(what string, r *http.Response, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, &SizeError{Content: what, Limit: limit}
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	// When the client hangs up, a server may end the body as if it were complete.
	if err := cmp.Or(err, r.Request.Context().Err()); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if int64(len(data)) > limit {
		return nil, &SizeError{Content: what, Limit: limit}
	}
	return data, nil
}

// call is a request to the registry's API.
type call struct {
	operation   string // for messages
	method      string
	path        string // relative to the repository; or url
	url         string
	accept      string
	contentType string
	body        []byte
	allowStatus int // another status that is not an error
}

// do sends a request, with authorization once the registry requires it.
func (r *Repository) do(ctx context.Context, c call) (*http.Response, error) {
	response, err := r.sendWithFallback(ctx, c)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusUnauthorized && !r.redirected(response) {
		authorization, err := r.authorize(ctx, response.Header.Values("WWW-Authenticate"))
		if err == nil && (authorization == "" || authorization == r.authorization) {
			return nil, statusError(c.operation, response)
		}
		_ = response.Body.Close() // only the header is needed
		if err != nil {
			return nil, err
		}
		r.authorization = authorization
		if response, err = r.sendWithFallback(ctx, c); err != nil {
			return nil, err
		}
	}
	if response.StatusCode/100 != 2 && response.StatusCode != c.allowStatus {
		return nil, statusError(c.operation, response)
	}
	return response, nil
}

// redirected reports whether another server responded. Its challenge could direct the
// credential to any token server.
func (r *Repository) redirected(response *http.Response) bool {
	return response.Request != nil && response.Request.URL.Host != r.reference.host()
}

// sendWithFallback sends a request. The first one to a registry on this machine detects
// whether it supports TLS.
func (r *Repository) sendWithFallback(ctx context.Context, c call) (*http.Response, error) {
	response, err := r.send(ctx, c)
	if errors.Is(err, http.ErrSchemeMismatch) && r.scheme == "https" && r.reference.isLoopback() {
		r.scheme = "http"
		return r.send(ctx, c)
	}
	return response, err
}

func (r *Repository) send(ctx context.Context, c call) (*http.Response, error) {
	at := c.url
	if at == "" {
		at = r.scheme + "://" + r.reference.host() + "/v2/" + r.reference.Repository + c.path
	}
	request, err := http.NewRequestWithContext(ctx, c.method, at, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	if c.accept != "" {
		request.Header.Set("Accept", c.accept)
	}
	if c.contentType != "" {
		request.Header.Set("Content-Type", c.contentType)
	}
	request.Header.Set("User-Agent", "gleaner")
	if r.authorization != "" && request.URL.Host == r.reference.host() {
		request.Header.Set("Authorization", r.authorization)
	}
	return r.client.Do(request)
}

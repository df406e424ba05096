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

// accepted are the forms of a manifest that are asked for.
var accepted = strings.Join([]string{
	string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
	string(types.OCIImageIndex), string(types.DockerManifestList),
}, ", ")

// Repository is one repository as one client sees it. It remembers what it is
// authorised by, and is for one goroutine.
//
// Errors of it are a *StatusError, *SizeError, *DigestError or *MalformedError,
// or those of the http.Client.
type Repository struct {
	client     *http.Client
	reference  Reference
	credential Credential

	actions       string // that are asked for
	scheme        string
	authorization string // the header that the registry asked for
}

// NewRepository returns the repository of a reference. A registry on this machine
// is spoken to by HTTPS or, if it does not know that, by HTTP; all others by
// HTTPS.
func NewRepository(client *http.Client, r Reference, c Credential) *Repository {
	return &Repository{client: client, reference: r, credential: c, actions: "pull", scheme: "https"}
}

// Manifest pulls the manifest with a tag or a digest, and tells its digest. One
// that was asked for by a digest has it.
func (r *Repository) Manifest(ctx context.Context, name string, limit int64) (data []byte, digest string, err error) {
	what := "the manifest " + name
	response, err := r.do(ctx, call{what: "pull " + what, method: http.MethodGet, path: "/manifests/" + name, accept: accepted})
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
		return nil, "", &DigestError{What: what, Want: name, Got: digest}
	}
	return data, digest, nil
}

// Blob pulls a blob of a known size, which bounds what is read.
func (r *Repository) Blob(ctx context.Context, digest string, size int64) ([]byte, error) {
	what := "the blob " + digest
	response, err := r.do(ctx, call{what: "pull " + what, method: http.MethodGet, path: "/blobs/" + digest})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := read(what, response, size)
	if tooLarge := new(SizeError); errors.As(err, &tooLarge) {
		return nil, &DigestError{What: what, Want: digest, Got: fmt.Sprintf("larger than the %d bytes of the manifest", size)}
	}
	if err != nil {
		return nil, err
	}
	if got := Digest(data); got != digest {
		return nil, &DigestError{What: what, Want: digest, Got: got}
	}
	return data, nil
}

// Digest is what content is known by.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func read(what string, r *http.Response, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, &SizeError{What: what, Limit: limit}
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	// A server that sees us hang up may end the body as if that were all of it.
	if err := cmp.Or(err, r.Request.Context().Err()); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if int64(len(data)) > limit {
		return nil, &SizeError{What: what, Limit: limit}
	}
	return data, nil
}

// call is one call of the registry's API.
type call struct {
	what        string // for messages
	method      string
	path        string // below the repository; or url
	url         string
	accept      string
	contentType string
	body        []byte
	also        int // a status that is no error either, beside those of success
}

// do makes a call, with authorization once the registry has asked for it.
func (r *Repository) do(ctx context.Context, c call) (*http.Response, error) {
	response, err := r.attempt(ctx, c)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusUnauthorized {
		authorization, err := r.answer(ctx, response.Header.Values("WWW-Authenticate"))
		if err == nil && (authorization == "" || authorization == r.authorization) {
			return nil, statusError(c.what, response)
		}
		_ = response.Body.Close() // the header said it all
		if err != nil {
			return nil, err
		}
		r.authorization = authorization
		if response, err = r.attempt(ctx, c); err != nil {
			return nil, err
		}
	}
	if response.StatusCode/100 != 2 && response.StatusCode != c.also {
		return nil, statusError(c.what, response)
	}
	return response, nil
}

// attempt makes a call as it is. The first one to a registry on this machine
// finds out whether that speaks TLS.
func (r *Repository) attempt(ctx context.Context, c call) (*http.Response, error) {
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

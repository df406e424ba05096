package oci

import (
	"context"
	"net/http"
	"net/url"
)

// Push pushes an artifact to the repository with a tag, and returns its digest.
func (r *Repository) Push(ctx context.Context, a Artifact, tag string) (string, error) {
	r.actions = "pull,push"
	for _, blob := range a.Blobs {
		if err := r.pushBlob(ctx, blob); err != nil {
			return "", err
		}
	}
	digest := Digest(a.Manifest)
	response, err := r.do(ctx, call{
		operation: "push the manifest", method: http.MethodPut, path: "/manifests/" + tag, contentType: a.MediaType, body: a.Manifest,
	})
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if got := response.Header.Get("Docker-Content-Digest"); got != "" && got != digest {
		return "", &DigestError{Content: "the pushed manifest", Want: digest, Got: printable(got)}
	}
	return digest, nil
}

// pushBlob pushes a blob, unless it exists.
func (r *Repository) pushBlob(ctx context.Context, data []byte) error {
	digest := Digest(data)
	there, err := r.do(ctx, call{
		operation: "check blob " + digest, method: http.MethodHead, path: "/blobs/" + digest, allowStatus: http.StatusNotFound,
	})
	if err != nil {
		return err
	}
	_ = there.Body.Close() // a HEAD has none
	if there.StatusCode == http.StatusOK {
		return nil
	}
	begun, err := r.do(ctx, call{operation: "start upload of blob " + digest, method: http.MethodPost, path: "/blobs/uploads/"})
	if err != nil {
		return err
	}
	_ = begun.Body.Close() // only the header is needed
	at, err := begun.Request.URL.Parse(begun.Header.Get("Location"))
	if err != nil || begun.Header.Get("Location") == "" {
		return &MalformedError{Operation: "start upload of blob " + digest, Reason: "the response has no Location header"}
	}
	done, err := r.do(ctx, call{
		operation: "push blob " + digest, method: http.MethodPut, url: withDigest(at, digest),
		contentType: "application/octet-stream", body: data,
	})
	if err != nil {
		return err
	}
	return done.Body.Close()
}

// withDigest adds the digest to the query, which may be signed.
func withDigest(at *url.URL, digest string) string {
	to := *at
	if to.RawQuery != "" {
		to.RawQuery += "&"
	}
	to.RawQuery += url.Values{"digest": {digest}}.Encode()
	return to.String()
}

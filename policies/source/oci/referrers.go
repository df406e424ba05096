package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Referrers returns the artifacts that are attached to a manifest: the descriptors of their
// manifests. The registry may ignore the artifact type. The list is what the registry claims,
// since a list has no digest.
//
// A registry without the referrers API has them in an index with a tag; see
// https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-referrers.
func (r *Repository) Referrers(ctx context.Context, digest, artifactType string, limit int64) ([]v1.Descriptor, error) {
	query := url.Values{"artifactType": {artifactType}}.Encode()
	data, err := r.index(ctx, "/referrers/"+digest+"?"+query, "the referrers of "+digest, limit)
	if withoutReferrers(err) {
		data, err = r.index(ctx, "/manifests/"+referrersTag(digest), "the referrers of "+digest, limit)
	}
	if notFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, &MalformedError{Operation: "list the referrers of " + digest, Reason: "the response is not an index"}
	}
	return index.Manifests, nil
}

// index pulls an index that has no digest.
func (r *Repository) index(ctx context.Context, path, what string, limit int64) ([]byte, error) {
	response, err := r.do(ctx, call{operation: "pull " + what, method: http.MethodGet, path: path, accept: string(types.OCIImageIndex)})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return read(what, response, limit)
}

// referrersTag is the tag of the index of a registry without the referrers API.
func referrersTag(digest string) string { return strings.Replace(digest, ":", "-", 1) }

// withoutReferrers reports whether an error means that the registry does not know the
// referrers API.
func withoutReferrers(err error) bool {
	status := new(StatusError)
	return errors.As(err, &status) && slices.Contains([]int{
		http.StatusNotFound, http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusNotImplemented,
	}, status.Status)
}

func notFound(err error) bool {
	status := new(StatusError)
	return errors.As(err, &status) && status.Status == http.StatusNotFound
}

// Attachment is an artifact with one layer that is attached to a manifest.
type Attachment struct {
	ArtifactType types.MediaType
	Data         []byte
	Annotations  map[string]string
}

// Attach pushes an artifact that refers to the manifest with this digest, and returns its own
// digest. Its annotations are also in the list of referrers.
func (r *Repository) Attach(ctx context.Context, digest string, a Attachment) (string, error) {
	const maxManifest = 4 << 20 // bytes, as of most registries
	r.actions = "pull,push"
	manifest, _, err := r.Manifest(ctx, digest, maxManifest)
	if err != nil {
		return "", err
	}
	subject, err := descriptor(manifestType(manifest), manifest)
	if err != nil {
		return "", err
	}
	artifact, own, err := a.pack(subject)
	if err != nil {
		return "", err
	}
	for _, blob := range artifact.Blobs {
		if err := r.pushBlob(ctx, blob); err != nil {
			return "", err
		}
	}
	response, err := r.do(ctx, call{
		operation: "push the attached manifest", method: http.MethodPut, path: "/manifests/" + own.Digest.String(),
		contentType: artifact.MediaType, body: artifact.Manifest,
	})
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.Header.Get("OCI-Subject") == "" {
		return own.Digest.String(), r.addReferrer(ctx, digest, own)
	}
	return own.Digest.String(), nil
}

// manifestType returns the media type that a manifest states.
func manifestType(manifest []byte) types.MediaType {
	var m struct {
		MediaType types.MediaType `json:"mediaType"`
	}
	if json.Unmarshal(manifest, &m) != nil || m.MediaType == "" {
		return types.OCIManifestSchema1
	}
	return m.MediaType
}

func (a Attachment) pack(subject v1.Descriptor) (Artifact, v1.Descriptor, error) {
	artifact, err := pack(a.ArtifactType, mediaTypeEmpty, []byte("{}"), []File{{Data: a.Data}})
	if err != nil {
		return Artifact{}, v1.Descriptor{}, err
	}
	var m v1.Manifest
	if err := json.Unmarshal(artifact.Manifest, &m); err != nil {
		return Artifact{}, v1.Descriptor{}, fmt.Errorf("pack attachment: %w", err)
	}
	m.Subject, m.Annotations, m.Layers[0].Annotations = &subject, a.Annotations, nil
	if artifact.Manifest, err = json.Marshal(m); err != nil {
		return Artifact{}, v1.Descriptor{}, fmt.Errorf("pack attachment: %w", err)
	}
	own, err := descriptor(types.OCIManifestSchema1, artifact.Manifest)
	own.ArtifactType, own.Annotations = string(a.ArtifactType), a.Annotations
	return artifact, own, err
}

// addReferrer adds an artifact to the index of a registry without the referrers API.
// Two that do so at the same time may lose one of them, which the specification accepts.
func (r *Repository) addReferrer(ctx context.Context, digest string, own v1.Descriptor) error {
	const maxIndex = 1 << 20 // bytes
	path := "/manifests/" + referrersTag(digest)
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	data, err := r.index(ctx, path, "the referrers of "+digest, maxIndex)
	switch {
	case notFound(err):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(data, &index); err != nil {
			return &MalformedError{Operation: "list the referrers of " + digest, Reason: "the response is not an index"}
		}
	}
	if slices.ContainsFunc(index.Manifests, func(d v1.Descriptor) bool { return d.Digest == own.Digest }) {
		return nil
	}
	index.Manifests = append(index.Manifests, own)
	if data, err = json.Marshal(index); err != nil {
		return fmt.Errorf("encode the referrers of %s: %w", digest, err)
	}
	response, err := r.do(ctx, call{
		operation: "push the referrers of " + digest, method: http.MethodPut, path: path, contentType: string(types.OCIImageIndex), body: data,
	})
	if err != nil {
		return err
	}
	return response.Body.Close()
}

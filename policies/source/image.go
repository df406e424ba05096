package source

import (
	"context"
	"errors"
	"net/http"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

// maxCredentials is the maximum number of credentials that are tried for an image.
const maxCredentials = 8

// fetchImage pulls a module from a registry, with each of the matching credentials
// until one is accepted.
func (f *Fetcher) fetchImage(ctx context.Context, s Source) (Fetched, error) {
	reference, err := oci.ParseReference(s.Image)
	if err != nil {
		return Fetched{}, errorf(InvalidReference, "the image %q is invalid: %v", s.Image, err)
	}
	if reference.Tag == "" && reference.Digest == "" {
		return Fetched{}, errorf(InvalidReference, "the image %s has no digest or tag: add @sha256: and its digest", s.Image)
	}
	credentials, err := credentialsFor(reference, s.PullSecrets)
	if err != nil {
		return Fetched{}, err
	}
	from := reference.String()
	turn := &downloadSlot{fetcher: f, source: s, host: reference.Registry}
	defer turn.release()
	for i, c := range credentials {
		p := &pull{fetcher: f, source: s, slot: turn, reference: reference, repository: oci.NewRepository(f.client(s), reference, c)}
		files, digest, err := p.files(ctx)
		var signers []string
		if err == nil {
			signers, err = p.verifySigned(ctx, digest)
		}
		if unauthorized(err) && i+1 < len(credentials) {
			continue
		}
		if err != nil {
			return Fetched{}, addAdvice(explain(ctx, from, err), reference, c)
		}
		got, err := f.verify(s, from, "image: "+reference.ByDigest(digest).String(), files)
		got.Signers, got.CacheErr = signers, p.cacheErr
		return got, err
	}
	return Fetched{}, nil // not reached: there is at least the anonymous credential
}

// credentialsFor returns the matching credentials, or the anonymous one.
func credentialsFor(r oci.Reference, secrets [][]byte) ([]oci.Credential, error) {
	var found []oci.Credential
	for i, secret := range secrets {
		c, err := oci.ParseDockerConfig(secret)
		if err != nil {
			return nil, errorf(InvalidPullSecret, "pull secret %d of %d is invalid: %v: create it with kubectl create secret docker-registry",
				i+1, len(secrets), err)
		}
		found = append(found, c.CredentialsFor(r)...)
	}
	if len(found) == 0 {
		return []oci.Credential{{}}, nil
	}
	return found[:min(len(found), maxCredentials)], nil
}

func unauthorized(err error) bool {
	status := new(oci.StatusError)
	return errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden)
}

// addAdvice adds what to do about an image to which access is denied.
func addAdvice(err error, r oci.Reference, c oci.Credential) error {
	e := new(Error)
	if !errors.As(err, &e) || e.Reason != Unauthorized {
		return err
	}
	if c == (oci.Credential{}) {
		e.Message += ": if it exists, add a pull secret for " + r.Registry
	} else {
		e.Message += ": the pull secrets for " + r.Registry + " are invalid, or lack permission to pull"
	}
	return e
}

func pinnedByImage(s Source) bool {
	return s.Image != "" && strings.Contains(s.Image, "@")
}

// pull pulls one image with one credential. Everything but the manifest of a tag
// has a digest, and is read from the cache if possible.
type pull struct {
	fetcher    *Fetcher
	source     Source
	slot       *downloadSlot
	reference  oci.Reference
	repository *oci.Repository
	cacheErr   error // the first error of the cache
}

// files pulls the files of the module, and returns the digest of the image.
func (p *pull) files(ctx context.Context) ([]File, string, error) {
	name := p.reference.Digest
	if name == "" {
		name = p.reference.Tag
	}
	m, digest, err := p.manifest(ctx, name)
	if err != nil {
		return nil, "", err
	}
	if m.isIndex() {
		chosen, err := m.wasmImage()
		if err != nil {
			return nil, "", err
		}
		if m, _, err = p.manifest(ctx, chosen); err != nil {
			return nil, "", err
		}
		if m.isIndex() {
			return nil, "", errorf(InvalidArtifact, "its index contains another index: use the digest of the image for wasm")
		}
	}
	limits := p.fetcher.limits
	limits.Download = limits.download(p.source)
	layers, unpack, err := m.layers(p.source.Language, limits)
	if err != nil {
		return nil, "", err
	}
	blobs := make([]layer, 0, len(layers))
	for _, l := range layers {
		data, err := p.blob(ctx, l)
		if err != nil {
			return nil, "", err
		}
		blobs = append(blobs, layer{title: l.Annotations[oci.AnnotationTitle], data: data})
	}
	files, err := unpack(p.source.Language, blobs, p.fetcher.limits)
	return files, digest, err
}

// manifest pulls a manifest by digest or tag.
func (p *pull) manifest(ctx context.Context, name string) (manifest, string, error) {
	limit := p.fetcher.limits.Manifest
	if data, ok := p.cached(name, limit); ok {
		m, err := parseManifest(data, p.fetcher.limits)
		return m, name, err
	}
	ctx, cancel, err := p.slot.acquire(ctx)
	if err != nil {
		return manifest{}, "", err
	}
	defer cancel()
	data, digest, err := p.repository.Manifest(ctx, name, limit)
	if err != nil {
		return manifest{}, "", err
	}
	m, err := parseManifest(data, p.fetcher.limits)
	if err == nil {
		p.store(digest, data)
	}
	return m, digest, err
}

func (p *pull) blob(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	digest := d.Digest.String()
	if data, ok := p.cached(digest, d.Size); ok && int64(len(data)) == d.Size {
		return data, nil
	}
	ctx, cancel, err := p.slot.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	data, err := p.repository.Blob(ctx, digest, d.Size)
	if err == nil {
		p.store(digest, data)
	}
	return data, err
}

// cached returns content from the cache. A tag is never cached.
func (p *pull) cached(name string, limit int64) ([]byte, bool) {
	sum, ok := strings.CutPrefix(name, "sha256:")
	if !ok {
		return nil, false
	}
	return p.fetcher.cache.get(p.source.Namespace, sum, limit)
}

func (p *pull) store(digest string, data []byte) {
	sum, _ := strings.CutPrefix(digest, "sha256:")
	p.cacheErr = errors.Join(p.cacheErr, p.fetcher.cache.put(p.source.Namespace, sum, data))
}

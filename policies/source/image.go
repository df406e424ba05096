package source

import (
	"context"
	"errors"
	"net/http"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
)

// mostCredentials is how many credentials are tried on one image.
const mostCredentials = 8

// fetchImage pulls a module from a registry, with each of the credentials that
// are for it until one is accepted.
func (f *Fetcher) fetchImage(ctx context.Context, s Source) (Fetched, error) {
	reference, err := oci.ParseReference(s.Image)
	if err != nil {
		return Fetched{}, fault(BadReference, "the image %q makes no sense: %v", s.Image, err)
	}
	if reference.Tag == "" && reference.Digest == "" {
		return Fetched{}, fault(BadReference, "the image %s does not say which: add @sha256: and its digest", s.Image)
	}
	credentials, err := credentialsFor(reference, s.PullSecrets)
	if err != nil {
		return Fetched{}, err
	}
	from := reference.String()
	turn := &turn{fetcher: f, source: s, host: reference.Registry}
	defer turn.end()
	for i, c := range credentials {
		p := &pull{fetcher: f, source: s, turn: turn, reference: reference, repository: oci.NewRepository(f.client(s), reference, c)}
		files, digest, err := p.files(ctx)
		if unauthorized(err) && i+1 < len(credentials) {
			continue
		}
		if err != nil {
			return Fetched{}, advise(explain(ctx, from, err), reference, c)
		}
		got, err := f.finish(s, from, "image: "+reference.ByDigest(digest).String(), files)
		got.KeepErr = p.keepErr
		return got, err
	}
	return Fetched{}, nil // there is always one, if only nobody's
}

// credentialsFor returns at least one: nobody's, if no secret is for the image.
func credentialsFor(r oci.Reference, secrets [][]byte) ([]oci.Credential, error) {
	var found []oci.Credential
	for i, secret := range secrets {
		c, err := oci.ParseDockerConfig(secret)
		if err != nil {
			return nil, fault(BadPullSecret, "pull secret %d of %d can't be read: %v: make it by kubectl create secret docker-registry",
				i+1, len(secrets), err)
		}
		found = append(found, c.For(r)...)
	}
	if len(found) == 0 {
		return []oci.Credential{{}}, nil
	}
	return found[:min(len(found), mostCredentials)], nil
}

func unauthorized(err error) bool {
	status := new(oci.StatusError)
	return errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden)
}

// advise says what to do about an image that is not given to us.
func advise(err error, r oci.Reference, c oci.Credential) error {
	e := new(Error)
	if !errors.As(err, &e) || e.Reason != Unauthorized {
		return err
	}
	if c == (oci.Credential{}) {
		e.Message += ": if it is there, name a pull secret that is for " + r.Registry
	} else {
		e.Message += ": the pull secrets for " + r.Registry + " are not accepted, or may not pull"
	}
	return e
}

func pinnedByImage(s Source) bool {
	return s.Image != "" && strings.Contains(s.Image, "@")
}

// pull is the way of one image, with one credential. All but the manifest of a
// tag has a digest, and comes from the cache if it is there.
type pull struct {
	fetcher    *Fetcher
	source     Source
	turn       *turn
	reference  oci.Reference
	repository *oci.Repository
	keepErr    error // the first
}

// files pulls the files of the module, and tells the digest of the image.
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
		chosen, err := m.choose()
		if err != nil {
			return nil, "", err
		}
		if m, _, err = p.manifest(ctx, chosen); err != nil {
			return nil, "", err
		}
		if m.isIndex() {
			return nil, "", fault(BadArtifact, "its index names another index: name the image for wasm by its own digest")
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

// manifest pulls one by digest or tag.
func (p *pull) manifest(ctx context.Context, name string) (manifest, string, error) {
	limit := p.fetcher.limits.Manifest
	if data, ok := p.kept(name, limit); ok {
		m, err := parseManifest(data, p.fetcher.limits)
		return m, name, err
	}
	ctx, cancel, err := p.turn.online(ctx)
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
		p.keep(digest, data)
	}
	return m, digest, err
}

func (p *pull) blob(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	digest := d.Digest.String()
	if data, ok := p.kept(digest, d.Size); ok && int64(len(data)) == d.Size {
		return data, nil
	}
	ctx, cancel, err := p.turn.online(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	data, err := p.repository.Blob(ctx, digest, d.Size)
	if err == nil {
		p.keep(digest, data)
	}
	return data, err
}

// kept looks into the cache. A tag is never there.
func (p *pull) kept(name string, limit int64) ([]byte, bool) {
	sum, ok := strings.CutPrefix(name, "sha256:")
	if !ok {
		return nil, false
	}
	return p.fetcher.cache.get(p.source.Namespace, sum, limit)
}

func (p *pull) keep(digest string, data []byte) {
	sum, _ := strings.CutPrefix(digest, "sha256:")
	p.keepErr = errors.Join(p.keepErr, p.fetcher.cache.put(p.source.Namespace, sum, data))
}

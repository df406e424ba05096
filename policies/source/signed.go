package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
)

// checkSigned rejects sources that can't be signed, and invalid signers, before anything is fetched.
func (s Source) checkSigned() error {
	if len(s.Signatures) != 0 && s.Image == "" {
		return errorf(NotSigned, "only images can be signed: push the module with gleaner module push --sign-key, and use its image")
	}
	for _, requirement := range s.Signatures {
		if _, err := signature.New(requirement); err != nil {
			return errorf(InvalidSigners, "%v", err)
		}
	}
	return nil
}

// verifySigned returns the trusted signers of the image with this digest: one for each
// requirement. Signatures that were accepted before are read from the cache, in case the
// registry is unavailable: they are verified again.
func (p *pull) verifySigned(ctx context.Context, digest string) (signers []string, err error) {
	var pulled *bundles
	for i, requirement := range p.source.Signatures {
		v, err := signature.New(requirement)
		if err != nil {
			return nil, errorf(InvalidSigners, "%v", err)
		}
		name := fmt.Sprintf("%s.%d", strings.TrimPrefix(digest, "sha256:"), i)
		if known, ok := p.fetcher.cache.getSignature(p.source.Namespace, name, signature.MaxBundleSize); ok {
			if got, err := v.Verify([][]byte{known}, digest); err == nil {
				signers = append(signers, got.Signer)
				continue
			}
		}
		if pulled == nil {
			if pulled, err = p.bundles(ctx, digest); err != nil {
				return nil, err
			}
		}
		got, err := pulled.verify(v, digest)
		if err != nil {
			return nil, err
		}
		signers = append(signers, got.Signer)
		p.cacheErr = errors.Join(p.cacheErr, p.fetcher.cache.putSignature(p.source.Namespace, name, got.Bundle))
	}
	return signers, nil
}

// VerifyImage returns the trusted signer of an image, without pulling its content. The error
// is an *Error if the image, its signatures or the registry caused it.
func VerifyImage(ctx context.Context, repository *oci.Repository, r oci.Reference, required signature.Requirement) (string, error) {
	v, err := signature.New(required)
	if err != nil {
		return "", errorf(InvalidSigners, "%v", err)
	}
	limits, digest := Limits{}.withDefaults(), r.Digest
	if digest == "" {
		if _, digest, err = repository.Manifest(ctx, r.Tag, limits.Manifest); err != nil {
			return "", explain(ctx, r.String(), err)
		}
	}
	all, err := pullBundles(ctx, repository, digest, limits)
	if err != nil {
		return "", explain(ctx, r.String(), err)
	}
	got, err := all.verify(v, digest)
	return got.Signer, err
}

// rejectSignature explains why an image is not used.
func rejectSignature(r *signature.RejectedError, skipped int) *Error {
	e := errorf(InvalidSignature, "%v: sign it with a trusted key or identity, or correct the trusted signers", r)
	if len(r.Reasons) == 0 {
		e = errorf(NotSigned, "%v: sign it with gleaner module push --sign-key, or with cosign sign (cosign 3 or later)", r)
		e.Temporary = true // images are signed after they are pushed
	}
	if skipped != 0 {
		e.Message += "; only the first of the artifacts that are attached to it were looked at: remove what is not needed"
	}
	return e
}

// bundles are the bundles that are attached to an image.
type bundles struct {
	data    [][]byte
	skipped int // too many
}

// verify returns the first signature by a trusted signer.
func (b *bundles) verify(v *signature.Verifier, digest string) (signature.Signature, error) {
	got, err := v.Verify(b.data, digest)
	if rejected := (*signature.RejectedError)(nil); errors.As(err, &rejected) {
		return got, rejectSignature(rejected, b.skipped)
	}
	return got, err
}

func (p *pull) bundles(ctx context.Context, digest string) (*bundles, error) {
	ctx, cancel, err := p.slot.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return pullBundles(ctx, p.repository, digest, p.fetcher.limits)
}

func pullBundles(ctx context.Context, repository *oci.Repository, digest string, limits Limits) (*bundles, error) {
	referrers, err := repository.Referrers(ctx, digest, signature.BundleMediaType, limits.Manifest)
	if err != nil {
		return nil, err
	}
	all := &bundles{}
	for _, r := range referrers {
		if !maybeSignature(r) {
			continue
		}
		if len(all.data) == signature.MaxBundles {
			all.skipped++
			continue
		}
		data, err := pullBundle(ctx, repository, r.Digest.String(), limits)
		if temporary(err) {
			return nil, err
		}
		all.data = append(all.data, data) // nil if it is invalid: others may be valid
	}
	return all, nil
}

// maybeSignature reports whether a referrer may be a signature. Some registries list the type of
// the config as the type of the artifact, so the annotation is sufficient.
func maybeSignature(d v1.Descriptor) bool {
	switch d.Annotations[signature.AnnotationPredicateType] {
	case signature.PredicateType:
		return true
	case "":
		return strings.HasPrefix(d.ArtifactType, signature.ArtifactType)
	}
	return false
}

// temporary reports whether another attempt may have another result. What an attached
// artifact contains is not temporary.
func temporary(err error) bool {
	if status := new(oci.StatusError); errors.As(err, &status) {
		return status.Status >= http.StatusInternalServerError || status.Status == http.StatusTooManyRequests || unauthorized(err)
	}
	return err != nil && !errors.As(err, new(*Error)) && !errors.As(err, new(*oci.SizeError))
}

func pullBundle(ctx context.Context, repository *oci.Repository, digest string, limits Limits) ([]byte, error) {
	data, _, err := repository.Manifest(ctx, digest, limits.Manifest)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(data, limits)
	if err != nil {
		return nil, err
	}
	if len(m.Layers) != 1 || m.Layers[0].Size > signature.MaxBundleSize {
		return nil, errorf(InvalidArtifact, "it has %d layers, or more than %d bytes", len(m.Layers), signature.MaxBundleSize)
	}
	return repository.Blob(ctx, m.Layers[0].Digest.String(), m.Layers[0].Size)
}

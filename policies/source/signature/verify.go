package signature

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// RejectedError means that no bundle has a signature of a trusted signer. It says of each
// why.
type RejectedError struct{ Reasons []string }

// Error implements error.
func (e *RejectedError) Error() string {
	switch len(e.Reasons) {
	case 0:
		return "it is not signed"
	case 1:
		return "its signature is rejected: " + e.Reasons[0]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "its %d signatures are rejected", len(e.Reasons))
	for i, reason := range e.Reasons {
		fmt.Fprintf(&b, "; signature %d: %s", i+1, reason)
		if b.Len() > maxMessage {
			b.WriteString("; …")
			break
		}
	}
	return b.String()
}

// maxMessage is the length in bytes from which messages list no more signatures.
const maxMessage = 1000

// Signature is a verified signature.
type Signature struct {
	Signer string // for messages
	Bundle []byte
}

// Verify returns the first bundle that is a signature of the image with this digest
// (sha256:…) by a trusted signer. The error is a *RejectedError if there is none.
func (v *Verifier) Verify(bundles [][]byte, digest string) (Signature, error) {
	algorithm, sum, _ := strings.Cut(digest, ":")
	image, err := hex.DecodeString(sum)
	if err != nil || algorithm != "sha256" {
		return Signature{}, fmt.Errorf("verify signature: %q is not a sha256 digest", digest)
	}
	rejected := &RejectedError{}
	for _, data := range bundles[:min(len(bundles), MaxBundles)] {
		signer, err := v.verify(data, image)
		if err == nil {
			return Signature{Signer: signer, Bundle: data}, nil
		}
		rejected.Reasons = append(rejected.Reasons, err.Error())
	}
	return Signature{}, rejected
}

// verify returns the signer of one bundle. What an attacker puts into it must not end the
// process.
func (v *Verifier) verify(data []byte, image []byte) (signer string, err error) {
	defer func() {
		if p := recover(); p != nil {
			signer, err = "", fmt.Errorf("the bundle is invalid: %v", p)
		}
	}()
	if len(data) > MaxBundleSize {
		return "", fmt.Errorf("the bundle is larger than %d bytes", MaxBundleSize)
	}
	var b bundle.Bundle
	if err := b.UnmarshalJSON(data); err != nil {
		return "", fmt.Errorf("the bundle is invalid: %s", printable(err.Error()))
	}
	content, err := b.VerificationContent()
	if err != nil {
		return "", fmt.Errorf("the bundle is invalid: %s", printable(err.Error()))
	}
	if content.Certificate() != nil {
		summary, err := certificate.SummarizeCertificate(content.Certificate())
		if err != nil {
			return "", fmt.Errorf("its certificate is invalid: %s", printable(err.Error()))
		}
		return v.verifyIdentity(&b, summary, image)
	}
	return v.verifyKeys(&b, image)
}

func (v *Verifier) verifyIdentity(b *bundle.Bundle, claimed certificate.Summary, image []byte) (string, error) {
	if v.identities == nil {
		return "", fmt.Errorf("it is by the identity %s, and only public keys are trusted", describe(claimed))
	}
	result, err := v.identities.Verify(b, verify.NewPolicy(verify.WithArtifactDigest("sha256", image), v.trusted...))
	if other := (*verify.ErrNoMatchingCertificateIdentity)(nil); errors.As(err, &other) {
		return "", fmt.Errorf("it is by the identity %s, which is not trusted", describe(claimed))
	}
	if err != nil {
		return "", fmt.Errorf("it claims the identity %s: %s", describe(claimed), printable(err.Error()))
	}
	return "identity " + describe(*result.Signature.Certificate), checkStatement(result)
}

func (v *Verifier) verifyKeys(b *bundle.Bundle, image []byte) (string, error) {
	if len(v.keys) == 0 {
		return "", errors.New("it is by a public key, and only identities are trusted")
	}
	policy := verify.NewPolicy(verify.WithArtifactDigest("sha256", image), verify.WithKey())
	var reasons []string
	for _, k := range v.keys {
		result, err := k.verifier.Verify(b, policy)
		if err == nil {
			return k.name, checkStatement(result)
		}
		reasons = append(reasons, k.name+": "+printable(err.Error()))
	}
	return "", fmt.Errorf("it is not by a trusted public key, or not of this image: %s", strings.Join(reasons, ", "))
}

// checkStatement rejects statements that do not mean that the image is signed: an
// attestation has the same subject, and may say the opposite.
func checkStatement(r *verify.VerificationResult) error {
	if r.Statement != nil && r.Statement.GetPredicateType() != PredicateType {
		return fmt.Errorf("it is an attestation of type %s, not a signature: sign the image with cosign sign, or gleaner module push --sign-key",
			printable(r.Statement.GetPredicateType()))
	}
	return nil
}

// Package signature decides whether the image of a module was signed by a signer that
// is trusted. Signatures are sigstore bundles, as cosign attaches them to images.
//
// It verifies offline: transparency logs and timestamp authorities are verified with what
// is in the bundle and in the trusted root. It reads no registry and no files. Sigstore's
// libraries do the cryptography.
//
// See https://docs.sigstore.dev/about/bundle/.
package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	sigstore "github.com/sigstore/sigstore/pkg/signature"
)

// ArtifactType is the prefix of the type of bundles that are attached to images. Their version
// follows.
const ArtifactType = "application/vnd.dev.sigstore.bundle"

// PredicateType is the type of the statement that cosign signs for an image.
const PredicateType = "https://sigstore.dev/cosign/sign/v1"

// AnnotationPredicateType is the annotation of an attached bundle with the type of its
// statement. By it, attestations are told from signatures before they are pulled.
const AnnotationPredicateType = "dev.sigstore.bundle.predicateType"

// Limits of what a registry returns. They are far above what signatures need.
const (
	MaxBundleSize = 256 << 10 // bytes
	MaxBundles    = 16
)

// Requirement is who has to sign an image: any one of the signers is sufficient. The
// zero value has no signers, and no image meets it.
type Requirement struct {
	Signers []Signer
	// TrustedRoot is the trusted_root.json of a sigstore deployment. It is required if a
	// signer is an identity, since it contains the CA that certifies identities.
	TrustedRoot []byte
}

// Signer is a public key or an identity; exactly one is set.
type Signer struct {
	PublicKey string // PEM
	Identity  *Identity
}

// Identity is the identity in a certificate of a keyless signature.
type Identity struct {
	Issuer string // URL of the OpenID Connect provider
	// Subject is an email address or URI, such as that of a workflow. Exactly one of
	// Subject and SubjectRegExp is set.
	Subject string
	// SubjectRegExp is a regular expression in RE2 syntax that matches the whole subject.
	SubjectRegExp string
}

// ConfigError is an invalid signer or trusted root. The message says what to write instead.
type ConfigError struct{ message string }

// Error implements error.
func (e *ConfigError) Error() string { return e.message }

func configErrorf(format string, args ...any) *ConfigError {
	return &ConfigError{fmt.Sprintf(format, args...)}
}

// Verifier verifies signatures. Its methods may be called concurrently.
type Verifier struct {
	keys []key
	// identities verifies certificates. Nil: no identity is trusted.
	identities *verify.Verifier
	trusted    []verify.PolicyOption
}

// key is a trusted public key.
type key struct {
	name     string
	verifier *verify.Verifier
}

// New returns a Verifier. The error is a *ConfigError.
func New(r Requirement) (*Verifier, error) {
	v, err := trusting(r.Signers)
	if err != nil || len(v.trusted) == 0 {
		return v, err
	}
	if len(r.TrustedRoot) == 0 {
		return nil, configErrorf("a signer is an identity, which requires a trusted root: start the operator with --trusted-root, or use a publicKey")
	}
	v.identities, err = identityVerifier(r.TrustedRoot)
	return v, err
}

// CheckSigners reports invalid signers. The error is a *ConfigError.
func CheckSigners(signers []Signer) error {
	_, err := trusting(signers)
	return err
}

// trusting returns a Verifier for the signers, without the verifier for identities.
func trusting(signers []Signer) (*Verifier, error) {
	if len(signers) == 0 {
		return nil, configErrorf("no signers: add a publicKey or an identity")
	}
	v := &Verifier{}
	for i, s := range signers {
		if err := v.trust(s); err != nil {
			return nil, configErrorf("signer %d of %d: %v", i+1, len(signers), err)
		}
	}
	return v, nil
}

func (v *Verifier) trust(s Signer) error {
	switch {
	case (s.PublicKey == "") == (s.Identity == nil):
		return configErrorf("use exactly one of publicKey and identity")
	case s.Identity != nil:
		option, err := s.Identity.option()
		v.trusted = append(v.trusted, option)
		return err
	}
	k, err := parseKey(s.PublicKey)
	v.keys = append(v.keys, k)
	return err
}

func parseKey(text string) (key, error) {
	public, err := cryptoutils.UnmarshalPEMToPublicKey([]byte(text))
	if err != nil {
		return key{}, configErrorf("the publicKey is not a public key in PEM: use the content of cosign.pub, which begins with -----BEGIN PUBLIC KEY-----")
	}
	if !isStrong(public) {
		return key{}, configErrorf("the publicKey is too weak, or of an unknown type: use ECDSA P-256, as cosign generate-key-pair does")
	}
	checker, err := sigstore.LoadDefaultVerifier(public)
	if err != nil {
		return key{}, configErrorf("the publicKey can't be used: %v", err)
	}
	always := root.NewExpiringKey(checker, time.Time{}, time.Time{})
	material := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) { return always, nil })
	verifier, err := verify.NewVerifier(material, verify.WithNoObserverTimestamps(), verify.WithoutStatementPredicate())
	if err != nil {
		return key{}, configErrorf("the publicKey can't be used: %v", err)
	}
	return key{nameKey(public), verifier}, nil
}

// isStrong reports whether a public key is of a type and size that sigstore supports.
func isStrong(public crypto.PublicKey) bool {
	const minRSA, maxRSA = 2048, 4096 // bits
	switch k := public.(type) {
	case ed25519.PublicKey:
		return true
	case *ecdsa.PublicKey:
		return slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, k.Curve)
	case *rsa.PublicKey:
		return k.Size()*8 >= minRSA && k.Size()*8 <= maxRSA
	}
	return false
}

// nameKey returns a name of a public key for messages: the start of the sha256 of its DER.
func nameKey(public crypto.PublicKey) string {
	der, err := cryptoutils.MarshalPublicKeyToDER(public)
	if err != nil {
		return "public key"
	}
	sum := sha256.Sum256(der)
	return "public key sha256:" + hex.EncodeToString(sum[:])[:16]
}

// option returns the option that trusts the identity. Patterns match the whole subject:
// sigstore's own would match a part of it.
func (i Identity) option() (verify.PolicyOption, error) {
	if i.Issuer == "" {
		return nil, configErrorf("an identity requires an issuer, such as https://token.actions.githubusercontent.com")
	}
	if (i.Subject == "") == (i.SubjectRegExp == "") {
		return nil, configErrorf("use exactly one of subject and subjectRegExp")
	}
	pattern := ""
	if i.SubjectRegExp != "" {
		if _, err := regexp.Compile(i.SubjectRegExp); err != nil {
			return nil, configErrorf("the subjectRegExp is not a regular expression: %v", err)
		}
		pattern = `\A(?:` + i.SubjectRegExp + `)\z`
	}
	identity, err := verify.NewShortCertificateIdentity(i.Issuer, "", i.Subject, pattern)
	if err != nil {
		return nil, configErrorf("%v", err)
	}
	return verify.WithCertificateIdentity(identity), nil
}

// CheckTrustedRoot reports a trusted root that can't be used. The error is a *ConfigError.
func CheckTrustedRoot(data []byte) error {
	_, err := identityVerifier(data)
	return err
}

// identityVerifier returns a verifier that requires everything that the trusted root can
// verify: an entry of a transparency log if it lists one, and a certificate of a CT log if
// it lists one. The time of the signature, at which the certificate has to be valid, is
// always required.
func identityVerifier(trustedRoot []byte) (*verify.Verifier, error) {
	material, err := root.NewTrustedRootFromJSON(trustedRoot)
	if err != nil {
		return nil, configErrorf("the trusted root is invalid: %v: use the trusted_root.json of the sigstore deployment", err)
	}
	if len(material.FulcioCertificateAuthorities()) == 0 {
		return nil, configErrorf("the trusted root has no certificate authorities: use the trusted_root.json of the sigstore deployment")
	}
	if len(material.RekorLogs()) == 0 && len(material.TimestampingAuthorities()) == 0 {
		return nil, configErrorf("the trusted root has neither a transparency log nor a timestamp authority, so the time of a signature can't be verified: add one")
	}
	options := []verify.VerifierOption{verify.WithObserverTimestamps(1), verify.WithoutStatementPredicate()}
	if len(material.RekorLogs()) != 0 {
		options = append(options, verify.WithTransparencyLog(1))
	}
	if len(material.CTLogs()) != 0 {
		options = append(options, verify.WithSignedCertificateTimestamps(1))
	}
	v, err := verify.NewVerifier(material, options...)
	if err != nil {
		return nil, configErrorf("the trusted root can't be used: %v", err)
	}
	return v, nil
}

// describe describes the identity in a certificate.
func describe(s certificate.Summary) string {
	return fmt.Sprintf("%s (issuer %s)", printable(s.SubjectAlternativeName), printable(s.Issuer))
}

// printable shortens text of a certificate, and removes what is not printable.
func printable(s string) string {
	const most = 200
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}

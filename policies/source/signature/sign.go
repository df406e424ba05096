package signature

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	sigstore "github.com/sigstore/sigstore/pkg/signature"
)

// BundleMediaType is the type of the bundles that a PrivateKey makes.
const BundleMediaType = ArtifactType + ".v0.3+json"

// Annotations returns the annotations of an attached bundle that a PrivateKey makes, as
// cosign writes them.
func Annotations() map[string]string {
	return map[string]string{"dev.sigstore.bundle.content": "dsse-envelope", AnnotationPredicateType: PredicateType}
}

const payloadType = "application/vnd.in-toto+json"

// PrivateKey signs images.
type PrivateKey struct {
	signer sigstore.Signer
	public crypto.PublicKey
}

// ErrPassword means that a private key is encrypted, and the password is wrong or missing.
var ErrPassword = errors.New("the private key is encrypted, and the password is wrong or missing")

// ParsePrivateKey reads a private key in PEM: PKCS #8, or encrypted with a password as
// cosign generate-key-pair does. The password may be nil. The error may be ErrPassword.
func ParsePrivateKey(pem, password []byte) (*PrivateKey, error) {
	encrypted := bytes.Contains(pem, []byte("BEGIN ENCRYPTED "))
	if encrypted && password == nil {
		return nil, ErrPassword
	}
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(pem, cryptoutils.StaticPasswordFunc(password))
	switch {
	case err != nil && encrypted:
		return nil, ErrPassword
	case err != nil:
		return nil, fmt.Errorf("it is not a private key in PEM: use one of cosign generate-key-pair, or PKCS #8: %w", err)
	}
	signer, err := sigstore.LoadDefaultSigner(private)
	if err != nil {
		return nil, fmt.Errorf("use a private key: %w", err)
	}
	public, err := signer.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("derive the public key: %w", err)
	}
	if !isStrong(public) {
		return nil, errors.New("the private key is too weak, or of an unknown type: use ECDSA P-256, as cosign generate-key-pair does")
	}
	return &PrivateKey{signer, public}, nil
}

// PublicKey returns the public key in PEM, for a Signer.
func (k *PrivateKey) PublicKey() (string, error) {
	pem, err := cryptoutils.MarshalPublicKeyToPEM(k.public)
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	return string(pem), nil
}

// statement is an in-toto statement, as cosign signs for an image.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     struct{}  `json:"predicate"`
}

type subject struct {
	Digest map[string]string `json:"digest"`
}

// Sign returns a bundle with a signature of the image with this digest (sha256:…).
func (k *PrivateKey) Sign(digest string) ([]byte, error) {
	algorithm, sum, _ := strings.Cut(digest, ":")
	payload, err := json.Marshal(statement{
		Type: "https://in-toto.io/Statement/v1", PredicateType: PredicateType, Subject: []subject{{map[string]string{algorithm: sum}}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode statement: %w", err)
	}
	signed, err := k.signer.SignMessage(bytes.NewReader(dsse.PAE(payloadType, payload)))
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	der, err := cryptoutils.MarshalPublicKeyToDER(k.public)
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	hint := sha256.Sum256(der)
	b, err := bundle.NewBundle(&protobundle.Bundle{
		MediaType: BundleMediaType,
		VerificationMaterial: &protobundle.VerificationMaterial{Content: &protobundle.VerificationMaterial_PublicKey{
			PublicKey: &protocommon.PublicKeyIdentifier{Hint: base64.StdEncoding.EncodeToString(hint[:])},
		}},
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: payload, PayloadType: payloadType, Signatures: []*protodsse.Signature{{Sig: signed}},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("make bundle: %w", err)
	}
	data, err := b.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode bundle: %w", err)
	}
	return data, nil
}

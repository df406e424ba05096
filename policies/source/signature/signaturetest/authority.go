// Package signaturetest is a sigstore deployment for tests: a certificate authority, a
// transparency log and a timestamp authority in memory.
package signaturetest

import (
	"crypto/elliptic"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/gleaner-dev/gleaner/policies/source/signature"
)

// KeyPair returns a new private key, and the signer that trusts it.
func KeyPair(t testing.TB) (*signature.PrivateKey, signature.Signer) {
	t.Helper()
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signature.ParsePrivateKey(private, nil)
	if err != nil {
		t.Fatal(err)
	}
	return key, signature.Signer{PublicKey: string(public)}
}

// Authority certifies any identity.
type Authority struct{ sigstore *ca.VirtualSigstore }

// NewAuthority returns a new authority, which only its own TrustedRoot trusts.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	s, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{s}
}

// TrustedRoot returns a trusted_root.json with the authority, its log and its timestamp
// authority.
func (a *Authority) TrustedRoot(t testing.TB) []byte {
	t.Helper()
	return a.trustedRoot(t, nil)
}

// TrustedRootWithCTLog returns a trusted_root.json that also has a CT log, in which the
// certificates of Sign are not logged.
func (a *Authority) TrustedRootWithCTLog(t testing.TB) []byte {
	t.Helper()
	return a.trustedRoot(t, a.sigstore.CTLogs())
}

func (a *Authority) trustedRoot(t testing.TB, ctLogs map[string]*root.TransparencyLog) []byte {
	t.Helper()
	r, err := root.NewTrustedRoot(root.TrustedRootMediaType01, a.sigstore.FulcioCertificateAuthorities(), withBinaryIDs(t, ctLogs),
		a.sigstore.TimestampingAuthorities(), withBinaryIDs(t, a.sigstore.RekorLogs()))
	if err != nil {
		t.Fatal(err)
	}
	data, err := r.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// withBinaryIDs decodes the IDs of logs, which are in hex in package ca and in binary in a trusted_root.json.
func withBinaryIDs(t testing.TB, logs map[string]*root.TransparencyLog) map[string]*root.TransparencyLog {
	t.Helper()
	for id, log := range logs {
		binary, err := hex.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		log.ID = binary
	}
	return logs
}

// Options are what is signed, and how. Issuer, Subject and Digest are required.
type Options struct {
	Issuer, Subject string
	Digest          string    // sha256:…
	Time            time.Time // at which it is logged. Zero: while the certificate is valid
	PredicateType   string    // Default: that of signatures
	NoLog           bool      // leaves out the entry of the log
}

// Sign returns a bundle with a keyless signature of an image.
func (a *Authority) Sign(t testing.TB, o Options) []byte {
	t.Helper()
	if o.Time.IsZero() {
		o.Time = time.Now().Add(5 * time.Minute) // certificates are valid from now
	}
	if o.PredicateType == "" {
		o.PredicateType = signature.PredicateType
	}
	statement, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": o.PredicateType, "predicate": map[string]any{},
		"subject": []any{map[string]any{"digest": map[string]string{"sha256": strings.TrimPrefix(o.Digest, "sha256:")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	entity, err := a.sigstore.AttestAtTime(o.Subject, o.Issuer, statement, o.Time, true)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := entity.SignatureContent()
	if err != nil {
		t.Fatal(err)
	}
	envelope := signed.EnvelopeContent().RawEnvelope()
	payload, err := base64.StdEncoding.DecodeString(envelope.Payload)
	if err != nil {
		t.Fatal(err)
	}
	material := a.material(t, entity)
	if o.NoLog {
		material.TlogEntries = nil
	}
	b, err := bundle.NewBundle(&protobundle.Bundle{
		MediaType: signature.BundleMediaType, VerificationMaterial: material,
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: payload, PayloadType: envelope.PayloadType,
			Signatures: []*protodsse.Signature{{Sig: signed.Signature()}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// material returns the certificate of a signature, its timestamps and its entries of the log.
func (a *Authority) material(t testing.TB, entity *ca.TestEntity) *protobundle.VerificationMaterial {
	t.Helper()
	content, err := entity.VerificationContent()
	if err != nil {
		t.Fatal(err)
	}
	timestamps, err := entity.Timestamps()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := entity.TlogEntries()
	if err != nil {
		t.Fatal(err)
	}
	material := &protobundle.VerificationMaterial{
		Content:                   &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: content.Certificate().Raw}},
		TimestampVerificationData: &protobundle.TimestampVerificationData{},
	}
	for _, at := range timestamps {
		material.TimestampVerificationData.Rfc3161Timestamps = append(material.TimestampVerificationData.Rfc3161Timestamps,
			&protocommon.RFC3161SignedTimestamp{SignedTimestamp: at})
	}
	for _, e := range entries {
		material.TlogEntries = append(material.TlogEntries, a.promise(t, e.TransparencyLogEntry()))
	}
	return material
}

// promise completes an entry of the log with what the log promises: its time.
func (a *Authority) promise(t testing.TB, e *protorekor.TransparencyLogEntry) *protorekor.TransparencyLogEntry {
	t.Helper()
	promise, err := a.sigstore.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(e.CanonicalizedBody), IntegratedTime: e.IntegratedTime,
		LogIndex: e.LogIndex, LogID: hex.EncodeToString(e.LogId.KeyId),
	})
	if err != nil {
		t.Fatal(err)
	}
	e.KindVersion = &protorekor.KindVersion{Kind: "dsse", Version: "0.0.1"}
	e.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	return e
}

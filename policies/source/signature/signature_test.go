package signature_test

import (
	"crypto/elliptic"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/gleaner-dev/gleaner/policies/source/signature"
	"github.com/gleaner-dev/gleaner/policies/source/signature/signaturetest"
)

const (
	image   = "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
	another = "sha256:0000000000000000000000000000000000000000000000000000000000000001"

	issuer  = "https://accounts.example.com"
	subject = "https://ci.example.com/team/policies/release.yaml"
)

func sign(t *testing.T, key *signature.PrivateKey, digest string) []byte {
	t.Helper()
	b, err := key.Sign(digest)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func verifier(t *testing.T, trustedRoot []byte, signers ...signature.Signer) *signature.Verifier {
	t.Helper()
	v, err := signature.New(signature.Requirement{Signers: signers, TrustedRoot: trustedRoot})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func identity(issuer, subject string) signature.Signer {
	return signature.Signer{Identity: &signature.Identity{Issuer: issuer, Subject: subject}}
}

func pattern(pattern string) signature.Signer {
	return signature.Signer{Identity: &signature.Identity{Issuer: issuer, SubjectRegExp: pattern}}
}

func TestVerify_Keys(t *testing.T) {
	key, trusted := signaturetest.KeyPair(t)
	other, alsoTrusted := signaturetest.KeyPair(t)
	third, _ := signaturetest.KeyPair(t)
	v := verifier(t, nil, trusted, alsoTrusted)
	for name, c := range map[string]struct {
		bundles [][]byte
		want    string // part of the error; empty: accepted
	}{
		"the first key":                    {bundles: [][]byte{sign(t, key, image)}},
		"the second key":                   {bundles: [][]byte{sign(t, other, image)}},
		"one of several signatures":        {bundles: [][]byte{sign(t, third, image), []byte("{"), sign(t, key, image)}},
		"stripped":                         {want: "it is not signed"},
		"wrong key":                        {bundles: [][]byte{sign(t, third, image)}, want: "it is not by a trusted public key, or not of this image"},
		"swapped for one of another image": {bundles: [][]byte{sign(t, key, another)}, want: "provided artifact digest does not match any digest in statement"},
		"not a bundle":                     {bundles: [][]byte{[]byte("hello")}, want: "the bundle is invalid"},
		"empty":                            {bundles: [][]byte{{}}, want: "the bundle is invalid"},
		"too large":                        {bundles: [][]byte{[]byte(strings.Repeat(" ", signature.MaxBundleSize) + string(sign(t, key, image)))}, want: "larger than"},
		"changed after it was signed":      {bundles: [][]byte{swapPayload(t, sign(t, key, another), sign(t, key, image))}, want: "not by a trusted public key"},
		"after more than are looked at":    {bundles: append(repeat([]byte("{"), signature.MaxBundles), sign(t, key, image)), want: "16 signatures are rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := v.Verify(c.bundles, image)
			check(t, got, err, "public key sha256:", c.want)
		})
	}
}

func check(t *testing.T, got signature.Signature, err error, signer, want string) {
	t.Helper()
	if want == "" {
		if err != nil || !strings.HasPrefix(got.Signer, signer) || len(got.Bundle) == 0 {
			t.Errorf("Verify() = %q, %v; want a signature by %s…", got.Signer, err, signer)
		}
		return
	}
	if rejected := (*signature.RejectedError)(nil); !errors.As(err, &rejected) || !strings.Contains(err.Error(), want) || got.Signer != "" || got.Bundle != nil {
		t.Errorf("Verify() = %q, %v\nwant a rejection that says %q", got.Signer, err, want)
	}
}

func repeat(b []byte, n int) [][]byte {
	var all [][]byte
	for range n {
		all = append(all, b)
	}
	return all
}

// swapPayload returns the first bundle with the statement of the second.
func swapPayload(t *testing.T, first, second []byte) []byte {
	t.Helper()
	field := func(b []byte) string {
		_, rest, ok := strings.Cut(strings.ReplaceAll(string(b), " ", ""), `"payload":"`)
		value, _, end := strings.Cut(rest, `"`)
		if !ok || !end {
			t.Fatalf("no payload in %s", b)
		}
		return value
	}
	changed := strings.Replace(string(first), field(first), field(second), 1)
	if changed == string(first) {
		t.Fatal("nothing was changed")
	}
	return []byte(changed)
}

func TestVerify_Identities(t *testing.T) {
	ca, foreign := signaturetest.NewAuthority(t), signaturetest.NewAuthority(t)
	key, trustedKey := signaturetest.KeyPair(t)
	signed := ca.Sign(t, signaturetest.Options{Issuer: issuer, Subject: subject, Digest: image})
	for name, c := range map[string]struct {
		signer signature.Signer
		bundle []byte
		want   string
	}{
		"exact":                       {signer: identity(issuer, subject), bundle: signed},
		"pattern":                     {signer: pattern(`https://ci\.example\.com/team/.*`), bundle: signed},
		"a pattern matches all of it": {signer: pattern(`ci\.example\.com/team`), bundle: signed, want: "which is not trusted"},
		"a pattern with alternatives": {signer: pattern(`a|https://ci\.example\.com`), bundle: signed, want: "which is not trusted"},
		"wrong subject":               {signer: identity(issuer, subject+"x"), bundle: signed, want: "by the identity " + subject + " (issuer " + issuer + "), which is not trusted"},
		"wrong issuer":                {signer: identity(issuer+".evil", subject), bundle: signed, want: "which is not trusted"},
		"certified by another CA":     {signer: identity(issuer, subject), bundle: foreign.Sign(t, signaturetest.Options{Issuer: issuer, Subject: subject, Digest: image}), want: "it claims the identity"},
		"outside the certificate's validity": {signer: identity(issuer, subject),
			bundle: ca.Sign(t, signaturetest.Options{Issuer: issuer, Subject: subject, Digest: image, Time: time.Now().Add(30 * time.Minute)}), want: "integrated time outside certificate validity"},
		"before the certificate's validity": {signer: identity(issuer, subject),
			bundle: ca.Sign(t, signaturetest.Options{Issuer: issuer, Subject: subject, Digest: image, Time: time.Now().Add(-30 * time.Minute)}), want: "integrated time outside certificate validity"},
		"without an entry of the log": {signer: identity(issuer, subject),
			bundle: ca.Sign(t, signaturetest.Options{Issuer: issuer, Subject: subject, Digest: image, NoLog: true}), want: "failed to verify log inclusion"},
		"of another image": {signer: identity(issuer, subject),
			bundle: ca.Sign(t, signaturetest.Options{Issuer: issuer, Subject: subject, Digest: another}), want: "does not match any digest in statement"},
		"an attestation": {signer: identity(issuer, subject),
			bundle: ca.Sign(t, signaturetest.Options{Issuer: issuer, Subject: subject, Digest: image, PredicateType: "https://example.com/do-not-use"}), want: "an attestation of type https://example.com/do-not-use, not a signature"},
		"a key instead of an identity": {signer: identity(issuer, subject), bundle: sign(t, key, image), want: "only identities are trusted"},
		"an identity instead of a key": {signer: trustedKey, bundle: signed, want: "only public keys are trusted"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := verifier(t, ca.TrustedRoot(t), c.signer).Verify([][]byte{c.bundle}, image)
			check(t, got, err, "identity "+subject+" (issuer "+issuer+")", c.want)
		})
	}
	t.Run("a CT log in the trusted root is required", func(t *testing.T) {
		_, err := verifier(t, ca.TrustedRootWithCTLog(t), identity(issuer, subject)).Verify([][]byte{signed}, image)
		check(t, signature.Signature{}, err, "", "failed to verify signed certificate timestamp")
	})
	t.Run("keys and identities", func(t *testing.T) {
		v := verifier(t, ca.TrustedRoot(t), trustedKey, identity(issuer, subject))
		for _, b := range [][]byte{signed, sign(t, key, image)} {
			if _, err := v.Verify([][]byte{b}, image); err != nil {
				t.Errorf("Verify() = %v, want no error", err)
			}
		}
	})
}

func TestNew_SaysWhatToWriteInstead(t *testing.T) {
	_, trusted := signaturetest.KeyPair(t)
	root := signaturetest.NewAuthority(t).TrustedRoot(t)
	_, weak, err := cryptoutils.GeneratePEMEncodedRSAKeyPair(1024, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		r    signature.Requirement
		want string
	}{
		"no signers":          {signature.Requirement{}, "no signers: add a publicKey or an identity"},
		"nothing in a signer": {signature.Requirement{Signers: []signature.Signer{trusted, {}}}, "signer 2 of 2: use exactly one of publicKey and identity"},
		"not a key":           {signature.Requirement{Signers: []signature.Signer{{PublicKey: "ssh-rsa AAAA"}}}, "use the content of cosign.pub"},
		"a weak key":          {signature.Requirement{Signers: []signature.Signer{{PublicKey: string(weak)}}}, "too weak"},
		"no trusted root":     {signature.Requirement{Signers: []signature.Signer{identity(issuer, subject)}}, "requires a trusted root: start the operator with --trusted-root"},
		"an invalid root":     {signature.Requirement{Signers: []signature.Signer{identity(issuer, subject)}, TrustedRoot: []byte("{}")}, "use the trusted_root.json"},
		"no issuer":           {signature.Requirement{Signers: []signature.Signer{identity("", subject)}, TrustedRoot: root}, "requires an issuer"},
		"no subject":          {signature.Requirement{Signers: []signature.Signer{identity(issuer, "")}, TrustedRoot: root}, "exactly one of subject and subjectRegExp"},
		"an invalid pattern":  {signature.Requirement{Signers: []signature.Signer{pattern("(")}, TrustedRoot: root}, "not a regular expression"},
		"an unbalanced one":   {signature.Requirement{Signers: []signature.Signer{pattern(")|(.*")}, TrustedRoot: root}, "not a regular expression"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := signature.New(c.r)
			if invalid := (*signature.ConfigError)(nil); !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("New() = %v, want a ConfigError that says %q", err, c.want)
			}
		})
	}
}

func TestParsePrivateKey_Encrypted(t *testing.T) {
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("secret")))
	if err != nil {
		t.Fatal(err)
	}
	for _, password := range [][]byte{nil, {}, []byte("guess")} {
		if _, err := signature.ParsePrivateKey(private, password); !errors.Is(err, signature.ErrPassword) {
			t.Errorf("ParsePrivateKey(password %q) = %v, want ErrPassword", password, err)
		}
	}
	key, err := signature.ParsePrivateKey(private, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := key.PublicKey(); err != nil || got != string(public) {
		t.Errorf("PublicKey() = %q, %v; want %q", got, err, public)
	}
	if _, err := verifier(t, nil, signature.Signer{PublicKey: string(public)}).Verify([][]byte{sign(t, key, image)}, image); err != nil {
		t.Error(err)
	}
	for _, pem := range []string{"", "hello", string(public)} {
		if _, err := signature.ParsePrivateKey([]byte(pem), nil); err == nil || !strings.Contains(err.Error(), "it is not a private key in PEM") {
			t.Errorf("ParsePrivateKey(%q) = %v, want that it is not one", pem, err)
		}
	}
}

// FuzzVerify shows that no bundle ends the process, and that none is accepted that the
// key did not sign.
func FuzzVerify(f *testing.F) {
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), nil)
	if err != nil {
		f.Fatal(err)
	}
	key, err := signature.ParsePrivateKey(private, nil)
	if err != nil {
		f.Fatal(err)
	}
	v, err := signature.New(signature.Requirement{Signers: []signature.Signer{{PublicKey: string(public)}}})
	if err != nil {
		f.Fatal(err)
	}
	b, err := key.Sign(another)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := v.Verify([][]byte{data}, image); err == nil {
			t.Errorf("Verify() accepts %q of an image that was not signed", got.Signer)
		}
	})
}

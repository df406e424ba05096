package source_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/oci"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
	"github.com/gleaner-dev/gleaner/policies/source/signature/signaturetest"
)

// signingKey returns a key, and what trusts it.
func signingKey(t *testing.T) (*signature.PrivateKey, *signature.Requirement) {
	t.Helper()
	key, signer := signaturetest.KeyPair(t)
	return key, &signature.Requirement{Signers: []signature.Signer{signer}}
}

// attach attaches a bundle to an image of the repository modules/a.
func (s *site) attach(t *testing.T, image string, bundle []byte) {
	t.Helper()
	_, digest, _ := strings.Cut(image, "@")
	a := oci.Attachment{ArtifactType: signature.BundleMediaType, Data: bundle, Annotations: signature.Annotations()}
	if _, err := s.repository(t, oci.Credential{}).Attach(t.Context(), digest, a); err != nil {
		t.Fatal(err)
	}
}

func (s *site) sign(t *testing.T, image string, key *signature.PrivateKey) {
	t.Helper()
	_, digest, _ := strings.Cut(image, "@")
	b, err := key.Sign(digest)
	if err != nil {
		t.Fatal(err)
	}
	s.attach(t, image, b)
}

func signedBy(image string, r *signature.Requirement) source.Source {
	s := wasmImage(image)
	s.Signatures = []signature.Requirement{*r}
	return s
}

// registries are registries with and without the referrers API.
func registries(t *testing.T, do func(t *testing.T, server *site)) {
	for name, options := range map[string][]registry.Option{"with referrers": {registry.WithReferrersSupport(true)}, "without referrers": nil} {
		t.Run(name, func(t *testing.T) {
			do(t, serve(t, registry.New(append(options, registry.Logger(quiet()))...)))
		})
	}
}

func TestSigned_ByAKeyOrAnIdentity(t *testing.T) {
	registries(t, func(t *testing.T, server *site) {
		key, trusted := signingKey(t)
		third, _ := signingKey(t)
		ca := signaturetest.NewAuthority(t)
		identity := &signature.Requirement{TrustedRoot: ca.TrustedRoot(t), Signers: []signature.Signer{
			{Identity: &signature.Identity{Issuer: "https://accounts.example.com", Subject: "ci@example.com"}}}}
		image := server.pushWasm(t, module("x"))
		f := fetcher(t, t.TempDir(), source.Limits{})
		refused(t, f, signedBy(image, trusted), source.NotSigned, "it is not signed", "gleaner module push --sign-key")
		server.sign(t, image, third)
		refused(t, f, signedBy(image, trusted), source.InvalidSignature, "not by a trusted public key", "correct the trusted signers")
		refused(t, f, signedBy(image, identity), source.InvalidSignature, "only identities are trusted")
		server.sign(t, image, key)
		_, digest, _ := strings.Cut(image, "@")
		server.attach(t, image, ca.Sign(t, signaturetest.Options{Issuer: "https://accounts.example.com", Subject: "ci@example.com", Digest: digest}))
		for want, r := range map[string]*signature.Requirement{"public key sha256:": trusted, "identity ci@example.com (issuer ": identity} {
			for _, from := range []string{image, server.host() + "/modules/a:v1"} { // by digest and by tag
				got := fetch(t, f, signedBy(from, r))
				only(t, got, module("x"))
				if len(got.Signers) != 1 || !strings.HasPrefix(got.Signers[0], want) {
					t.Errorf("%s: the signers are %q, want %s…", from, got.Signers, want)
				}
			}
		}
		if got := fetch(t, f, wasmImage(image)); len(got.Signers) != 0 {
			t.Errorf("the signers are %q although none was required", got.Signers)
		}
		both := wasmImage(image)
		both.Signatures = []signature.Requirement{*trusted, *identity}
		if got := fetch(t, f, both); len(got.Signers) != 2 {
			t.Errorf("the signers are %q, want one for each requirement", got.Signers)
		}
		_, other := signingKey(t)
		both.Signatures = append(both.Signatures, *other)
		refused(t, f, both, source.InvalidSignature, "not by a trusted public key")
	})
}

func TestSigned_ASignatureOfAnotherImageIsRefused(t *testing.T) {
	registries(t, func(t *testing.T, server *site) {
		key, trusted := signingKey(t)
		good, evil := server.pushWasm(t, module("good")), server.pushWasm(t, module("evil"))
		_, digest, _ := strings.Cut(good, "@")
		swapped, err := key.Sign(digest)
		if err != nil {
			t.Fatal(err)
		}
		server.attach(t, evil, swapped)
		refused(t, fetcher(t, t.TempDir(), source.Limits{}), signedBy(evil, trusted), source.InvalidSignature, "not of this image", "does not match any digest in statement")
	})
}

func TestSigned_OthersAttachedArtifactsDoNotHideASignature(t *testing.T) {
	registries(t, func(t *testing.T, server *site) {
		key, trusted := signingKey(t)
		image := server.pushWasm(t, module("x"))
		_, digest, _ := strings.Cut(image, "@")
		repository := server.repository(t, oci.Credential{})
		for i := range 2 * signature.MaxBundles {
			a := oci.Attachment{ArtifactType: signature.BundleMediaType, Data: []byte(strings.Repeat(" ", i)), Annotations: map[string]string{
				signature.AnnotationPredicateType: "https://slsa.dev/provenance/v1"}}
			if i%2 == 0 {
				a.ArtifactType = "application/vnd.example.sbom"
			}
			if _, err := repository.Attach(t.Context(), digest, a); err != nil {
				t.Fatal(err)
			}
		}
		server.attach(t, image, []byte("not a bundle"))
		server.attach(t, image, []byte(strings.Repeat("x", signature.MaxBundleSize+1)))
		server.sign(t, image, key)
		only(t, fetch(t, fetcher(t, "", source.Limits{}), signedBy(image, trusted)), module("x"))
	})
}

func TestSigned_OnlyTheFirstSignaturesAreRead(t *testing.T) {
	server := serve(t, registry.New(registry.WithReferrersSupport(true), registry.Logger(quiet())))
	_, trusted := signingKey(t)
	image := server.pushWasm(t, module("x"))
	for i := range signature.MaxBundles + 5 {
		server.attach(t, image, []byte(strings.Repeat("x", i+1)))
	}
	before := server.asked.Load()
	refused(t, fetcher(t, "", source.Limits{}), signedBy(image, trusted), source.InvalidSignature, "only the first of the artifacts")
	if n := server.asked.Load() - before; n > 2*signature.MaxBundles+10 {
		t.Errorf("the registry was asked %d times", n)
	}
}

func TestSigned_WhatIsNotAnImageIsRefused(t *testing.T) {
	_, trusted := signingKey(t)
	f := fetcher(t, "", source.Limits{})
	for _, s := range []source.Source{
		{Language: source.Rego, Inline: regoText},
		{Language: source.Rego, ConfigMap: &source.ConfigMap{Name: "a", Key: "b", Data: map[string]string{"b": regoText}}},
		wasmURL("https://127.0.0.1/module.wasm"),
	} {
		s.Signatures = []signature.Requirement{*trusted}
		refused(t, f, s, source.NotSigned, "only images can be signed")
	}
	refused(t, f, signedBy("127.0.0.1:1/modules/a:v1", &signature.Requirement{}), source.InvalidSigners, "add a publicKey or an identity") // before the registry is asked
}

func TestSigned_IsVerifiedAgainFromTheCacheWhileTheRegistryIsDown(t *testing.T) {
	var down atomic.Bool
	behind := registry.New(registry.WithReferrersSupport(true), registry.Logger(quiet()))
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	key, trusted := signingKey(t)
	_, others := signingKey(t)
	image := server.pushWasm(t, module("x"))
	server.sign(t, image, key)
	folder := t.TempDir()
	fetch(t, fetcher(t, folder, source.Limits{}), signedBy(image, trusted))
	down.Store(true)
	if got := fetch(t, fetcher(t, folder, source.Limits{}), signedBy(image, trusted)); len(got.Signers) != 1 {
		t.Error("no signer")
	}
	if e := refused(t, fetcher(t, folder, source.Limits{}), signedBy(image, others), source.Unreachable); !e.Temporary {
		t.Error("an unavailable registry is not temporary")
	}
	if e := refused(t, fetcher(t, t.TempDir(), source.Limits{}), signedBy(image, trusted), source.Unreachable); !e.Temporary {
		t.Error("an unavailable registry is not temporary")
	}
}

func TestSigned_AnUnreadableListOfSignaturesIsNotAnEmptyOne(t *testing.T) {
	behind := registry.New(registry.WithReferrersSupport(true), registry.Logger(quiet()))
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/referrers/") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	_, trusted := signingKey(t)
	if e := refused(t, fetcher(t, "", source.Limits{}), signedBy(server.pushWasm(t, module("x")), trusted), source.Unreachable, "referrers"); !e.Temporary {
		t.Error("it is not temporary")
	}
}

package policyset_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore/fetch"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/policies/source/oci"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
	"github.com/gleaner-dev/gleaner/policies/source/signature/signaturetest"
)

const (
	issuer  = "https://accounts.example.com"
	subject = "https://ci.example.com/release"
)

// signedModules is a registry on loopback, with its signers.
type signedModules struct {
	*testing.T
	host string
}

func newSignedModules(t *testing.T) signedModules {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return signedModules{t, strings.TrimPrefix(server.URL, "http://")}
}

// push pushes a module with bundles, which are made for its digest, and returns its image.
func (m signedModules) push(name string, bundles ...func(digest string) []byte) v1alpha1.Image {
	m.Helper()
	reference, err := oci.ParseReference(m.host + "/modules/" + name)
	if err != nil {
		m.Fatal(err)
	}
	artifact, err := oci.PackRego([]oci.File{{Name: name + ".rego", Data: []byte(policysettest.KeepText)}})
	if err != nil {
		m.Fatal(err)
	}
	repository := oci.NewRepository(http.DefaultClient, reference, oci.Credential{})
	digest, err := repository.Push(m.Context(), artifact, "v1")
	if err != nil {
		m.Fatal(err)
	}
	for _, make := range bundles {
		a := oci.Attachment{ArtifactType: signature.BundleMediaType, Data: make(digest), Annotations: signature.Annotations()}
		if _, err := repository.Attach(m.Context(), digest, a); err != nil {
			m.Fatal(err)
		}
	}
	return v1alpha1.Image(reference.ByDigest(digest).String())
}

// key returns a key's signer, and a function that signs with it.
func (m signedModules) key() (v1alpha1.Signer, func(digest string) []byte) {
	m.Helper()
	key, signer := signaturetest.KeyPair(m)
	return v1alpha1.Signer{PublicKey: signer.PublicKey}, func(digest string) []byte {
		b, err := key.Sign(digest)
		if err != nil {
			m.Fatal(err)
		}
		return b
	}
}

func module(name string, image v1alpha1.Image, signers ...v1alpha1.Signer) *v1alpha1.ClusterPolicyModule {
	o := &v1alpha1.ClusterPolicyModule{ObjectMeta: policysettest.Meta("", name), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Image: image}}}
	if len(signers) != 0 {
		o.Spec.Verify = &v1alpha1.SignatureVerification{Signers: signers}
	}
	return o
}

func TestVerify_WhatIsNotSignedByATrustedSignerIsRefusedWithTheReason(t *testing.T) {
	m := newSignedModules(t)
	ca := signaturetest.NewAuthority(t)
	keyless := func(o signaturetest.Options) func(string) []byte {
		return func(digest string) []byte {
			if o.Digest == "" {
				o.Digest = digest
			}
			return ca.Sign(t, o)
		}
	}
	key, sign := m.key()
	_, third := m.key()
	identity := v1alpha1.Signer{Identity: &v1alpha1.SignerIdentity{Issuer: issuer, Subject: subject}}
	good := signaturetest.Options{Issuer: issuer, Subject: subject}
	late, swapped := good, good
	late.Time, swapped.Digest = time.Now().Add(30*time.Minute), "sha256:"+strings.Repeat("0", 64)
	cases := map[string]struct {
		module          *v1alpha1.ClusterPolicyModule
		reason, message string // of the condition Fetched; empty: it is used
		signer          string
	}{
		"key":               {module: module("key", m.push("key", sign), key), signer: "public key sha256:"},
		"identity":          {module: module("identity", m.push("identity", keyless(good)), identity), signer: "identity " + subject + " (issuer " + issuer + ")"},
		"stripped":          {module: module("stripped", m.push("stripped"), key), reason: "NotSigned", message: "it is not signed"},
		"wrong-key":         {module: module("wrong-key", m.push("wrong-key", third), key), reason: "InvalidSignature", message: "it is not by a trusted public key"},
		"wrong-identity":    {module: module("wrong-identity", m.push("wrong-identity", keyless(signaturetest.Options{Issuer: issuer, Subject: "me@example.com"})), identity), reason: "InvalidSignature", message: "me@example.com (issuer " + issuer + "), which is not trusted"},
		"outside-validity":  {module: module("outside-validity", m.push("outside-validity", keyless(late)), identity), reason: "InvalidSignature", message: "outside certificate validity"},
		"swapped":           {module: module("swapped", m.push("swapped", keyless(swapped)), identity), reason: "InvalidSignature", message: "does not match any digest in statement"},
		"no-image":          {module: policysettest.Module("no-image", policysettest.KeepText), reason: "NotSigned", message: "the operator requires signatures"},
		"without-verify":    {module: module("without-verify", m.push("without-verify", sign)), reason: "NotSigned", message: "write its signers in spec.verify"},
		"invalid-signer":    {module: module("invalid-signer", m.push("invalid-signer", sign), v1alpha1.Signer{PublicKey: "-----BEGIN PUBLIC KEY-----"}), reason: "InvalidSigners", message: "use the content of cosign.pub"},
		"inline-and-verify": {module: inlineWithVerify(key), reason: "NotSigned", message: "only images can be signed"},
	}
	var resources []client.Object
	for _, c := range cases {
		resources = append(resources, c.module)
	}
	s := policysettest.New(t, func(o *policysettest.Options) {
		o.Loader.Trust = fetch.Trust{Required: true, TrustedRoot: ca.TrustedRoot(t)}
	}, resources...).Settle()
	seen := 0
	for _, got := range s.Modules {
		c, ok := cases[got.Object.GetName()]
		if !ok {
			t.Fatalf("unexpected module %s", got)
		}
		seen++
		if c.reason != "" {
			hasProblem(t, got.Problem, v1alpha1.ConditionFetched, c.reason, c.message)
			if got.Content != nil {
				t.Errorf("%s is used", got)
			}
			continue
		}
		if got.Content == nil || len(got.Content.Signers) != 1 || !strings.HasPrefix(got.Content.Signers[0], c.signer) {
			t.Errorf("%s: %+v, content %+v; want it signed by %s", got, got.Problem, got.Content, c.signer)
		}
	}
	if seen != len(cases) {
		t.Errorf("%d of %d modules are in the snapshot", seen, len(cases))
	}
}

func inlineWithVerify(signer v1alpha1.Signer) *v1alpha1.ClusterPolicyModule {
	o := policysettest.Module("inline-and-verify", policysettest.KeepText)
	o.Spec.Verify = &v1alpha1.SignatureVerification{Signers: []v1alpha1.Signer{signer}}
	return o
}

// The signers of the operator are not in resources, so that authors of modules can not change them.
func TestVerify_TheSignersOfTheOperatorAreRequiredOfEveryModule(t *testing.T) {
	m := newSignedModules(t)
	operators, signOperators := m.key()
	own, signOwn := m.key()
	s := policysettest.New(t, func(o *policysettest.Options) { o.Loader.Trust = fetch.Trust{Signers: []v1alpha1.Signer{operators}} },
		module("both", m.push("both", signOwn, signOperators), own),
		module("operators", m.push("operators", signOperators)),
		module("own", m.push("own", signOwn), own)).Settle()
	for _, got := range s.Modules {
		switch got.Object.GetName() {
		case "own":
			hasProblem(t, got.Problem, v1alpha1.ConditionFetched, "InvalidSignature", "not by a trusted public key")
		case "both":
			if got.Content == nil || len(got.Content.Signers) != 2 {
				t.Errorf("both: %+v, %+v", got.Problem, got.Content)
			}
		case "operators":
			if got.Content == nil || len(got.Content.Signers) != 1 {
				t.Errorf("operators: %+v, %+v", got.Problem, got.Content)
			}
		}
	}
}

package main

import (
	"crypto/elliptic"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
)

// keyFiles writes a key pair as cosign generate-key-pair does.
func keyFiles(t *testing.T, password string) (private, public string) {
	t.Helper()
	key, pub, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte(password)))
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "cosign.key", string(key)), writeFile(t, "cosign.pub", string(pub))
}

func TestModulePush_SignKey_SignsForVerify(t *testing.T) {
	notLoggedIn(t)
	host := registryFor(t, "")
	policy := writeFile(t, "policy.rego", orphanRego)
	private, public := keyFiles(t, "secret")
	_, other := keyFiles(t, "")

	unsigned, _ := pushed(t, policy, host+"/policies/unsigned:v1")
	fails(t, "it is not signed", "module", "verify", unsigned, "--key", public)
	fails(t, "the password is wrong or missing: set $COSIGN_PASSWORD", "module", "push", policy, host+"/policies/signed:v1", "--sign-key", private)
	t.Setenv("COSIGN_PASSWORD", "secret")
	image, sum := pushed(t, policy, host+"/policies/signed:v1", "--sign-key", private)

	for _, name := range []string{image, host + "/policies/signed:v1"} {
		out, err := execute(t, "module", "verify", name, "--key", other, "--key", public)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out, name+": signed by public key sha256:") {
			t.Errorf("verify prints %q", out)
		}
	}
	fails(t, "it is not by a trusted public key", "module", "verify", image, "--key", other)
	fails(t, "set --key, or --certificate-identity", "module", "verify", image)
	fails(t, "requires a trusted root", "module", "verify", image, "--certificate-identity", "me@example.com", "--certificate-oidc-issuer", "https://accounts.example.com")
	fails(t, "requires an issuer", "module", "verify", image, "--certificate-identity", "me@example.com")
	fails(t, "requires one image, or -f", "module", "verify")
	fails(t, "the image has no digest or tag", "module", "verify", host+"/policies/signed", "--key", public)
	fails(t, "it is not a private key in PEM", "module", "push", policy, host+"/policies/signed:v2", "--sign-key", public)

	pem, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	got := pulled(t, source.Source{Language: source.Rego, Image: image, SHA256: sum, Signatures: []signature.Requirement{
		{Signers: []signature.Signer{{PublicKey: string(pem)}}}}})
	if len(got.Signers) != 1 {
		t.Errorf("the operator sees the signers %q", got.Signers)
	}
}

func TestModuleVerify_Manifest(t *testing.T) {
	notLoggedIn(t)
	private, public := keyFiles(t, "")
	t.Setenv("COSIGN_PASSWORD", "")
	image, _ := pushed(t, writeFile(t, "policy.rego", orphanRego), registryFor(t, "")+"/policies/signed:v1", "--sign-key", private)
	pem, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	module := func(name, spec string) string {
		return "apiVersion: gleaner.dev/v1alpha1\nkind: ClusterPolicyModule\nmetadata: {name: " + name + "}\nspec:\n" + spec + "\n---\n"
	}
	signers := "  verify:\n    signers:\n    - publicKey: |\n        " + strings.ReplaceAll(strings.TrimSpace(string(pem)), "\n", "\n        ")
	manifest := filepath.Join(t.TempDir(), "modules.yaml")
	write := func(text string) {
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(module("a", "  rego: {image: "+image+"}\n"+signers) + module("unsigned", "  rego: {image: "+image+"}"))
	out, err := execute(t, "module", "verify", "-f", manifest)
	if err != nil || !strings.HasPrefix(out, "clusterpolicymodule/a: signed by public key sha256:") || strings.Contains(out, "unsigned") {
		t.Errorf("verify prints %q, %v", out, err)
	}
	fails(t, "leave out --key", "module", "verify", "-f", manifest, "--key", public)
	write(module("a", "  rego: {inline: x}\n"+signers))
	fails(t, "only images can be signed", "module", "verify", "-f", manifest)
	write(module("a", "  rego: {inline: x}"))
	fails(t, "no PolicyModule or ClusterPolicyModule with spec.verify", "module", "verify", "-f", manifest)
}

// fails makes sure that a command fails and says so.
func fails(t *testing.T, want string, args ...string) {
	t.Helper()
	out, err := execute(t, args...)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("gleaner %s: %v\n%s\nwant an error that says %q", strings.Join(args, " "), err, out, want)
	}
}

package module

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/modulestore/fetch"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
	"github.com/gleaner-dev/gleaner/policies/source/oci"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
)

// verifyOptions are the flags of gleaner module verify. Those of identities are named as in
// cosign verify.
type verifyOptions struct {
	files         []string
	keys          []string
	issuer        string
	subject       string
	subjectRegExp string
	trustedRoot   string
}

func moduleVerify() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify {IMAGE | -f MANIFEST}",
		Short: "Verify the signature of a module",
		Long: "Verify that an image has a valid signature by a public key or identity, as the operator does, and print the\n" +
			"signer. Signatures are sigstore bundles that are attached to the image, as gleaner module push --sign-key and\n" +
			"cosign sign make them; they are verified without a connection to sigstore. With -f, verify the modules of a\n" +
			"manifest that have spec.verify. Credentials are those of docker login or podman login.",
		Example: `  gleaner module verify registry.example.com/team/keep-claims:v1 --key cosign.pub
  gleaner module verify registry.example.com/team/keep-claims:v1 --trusted-root trusted_root.json \
    --certificate-oidc-issuer https://token.actions.githubusercontent.com \
    --certificate-identity https://github.com/example/policies/.github/workflows/release.yaml@refs/heads/main
  gleaner module verify -f module.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (len(o.files) != 0) || len(args) > 1 {
				return exit.AsUsage(fmt.Errorf("%s requires one image, or -f and a manifest", cmd.CommandPath()))
			}
			trust, err := o.trust()
			if err != nil {
				return err
			}
			if len(o.files) != 0 {
				return verifyManifests(cmd, o.files, trust)
			}
			if err := trust.Validate(); err != nil {
				return exit.AsUsage(fmt.Errorf("verify %s: %w: set --key, or --certificate-identity, --certificate-oidc-issuer and --trusted-root", args[0], err))
			}
			return verifyImage(cmd, args[0], args[0], trust.Requirement(trust.Signers))
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "manifest `file` with modules that have spec.verify; - is standard input")
	flags.StringArrayVar(&o.keys, "key", nil, "`file` with a trusted public key, such as cosign.pub; may be repeated")
	flags.StringVar(&o.subject, "certificate-identity", "", "trusted identity: an email address or URI")
	flags.StringVar(&o.subjectRegExp, "certificate-identity-regexp", "", "regular `expression` for the whole trusted identity, instead of --certificate-identity")
	flags.StringVar(&o.issuer, "certificate-oidc-issuer", "", "`URL` of the OpenID Connect provider of the trusted identity")
	flags.StringVar(&o.trustedRoot, "trusted-root", "", "`file` with the trusted_root.json of a sigstore deployment, which identities require")
	return cmd
}

// trust reads the files of the flags.
func (o *verifyOptions) trust() (fetch.Trust, error) {
	var t fetch.Trust
	for _, name := range o.keys {
		pem, err := os.ReadFile(name)
		if err != nil {
			return t, fmt.Errorf("--key: %w", err)
		}
		t.Signers = append(t.Signers, v1alpha1.Signer{PublicKey: string(pem)})
	}
	if o.issuer != "" || o.subject != "" || o.subjectRegExp != "" {
		t.Signers = append(t.Signers, v1alpha1.Signer{Identity: &v1alpha1.SignerIdentity{
			Issuer: o.issuer, Subject: o.subject, SubjectRegExp: o.subjectRegExp}})
	}
	if len(o.files) != 0 && len(t.Signers) != 0 {
		return t, exit.Usagef("-f %s: leave out --key and --certificate-identity, since the signers are those of spec.verify", strings.Join(o.files, " "))
	}
	if o.trustedRoot == "" {
		return t, nil
	}
	var err error
	if t.TrustedRoot, err = os.ReadFile(o.trustedRoot); err == nil {
		err = signature.CheckTrustedRoot(t.TrustedRoot)
	}
	if err != nil {
		return t, fmt.Errorf("--trusted-root: %w", err)
	}
	return t, nil
}

// verifyManifests verifies the modules of manifests.
func verifyManifests(cmd *cobra.Command, names []string, trust fetch.Trust) error {
	objects, err := kubectl.Load(names)
	if err != nil {
		return err
	}
	verified := 0
	var failed []error
	for _, o := range objects {
		m, name, err := signedModule(o)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		verified++
		if err := verifyImage(cmd, name, string(m.image), trust.Requirement(m.signers)); err != nil {
			failed = append(failed, err)
		}
	}
	if verified == 0 {
		return fmt.Errorf("no PolicyModule or ClusterPolicyModule with spec.verify found in %s", strings.Join(names, ", "))
	}
	return errors.Join(failed...)
}

// declaredSigners are who has to sign the module of a manifest.
type declaredSigners struct {
	image   v1alpha1.Image
	signers []v1alpha1.Signer
}

// signedModule returns nil if the object is not a module with spec.verify.
func signedModule(o *unstructured.Unstructured) (*declaredSigners, string, error) {
	kind := o.GroupVersionKind().GroupKind()
	if kind.Group != v1alpha1.GroupVersion.Group || kind.Kind != "PolicyModule" && kind.Kind != "ClusterPolicyModule" {
		return nil, "", nil
	}
	name := strings.ToLower(kind.Kind) + "/" + o.GetName()
	var m v1alpha1.PolicyModule // a ClusterPolicyModule has the same spec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &m); err != nil {
		return nil, name, fmt.Errorf("read %s: %w", name, err)
	}
	if m.Spec.Verify == nil {
		return nil, name, nil
	}
	d := &declaredSigners{signers: m.Spec.Verify.Signers}
	switch {
	case m.Spec.Rego != nil:
		d.image = m.Spec.Rego.Image
	case m.Spec.Wasm != nil:
		d.image = m.Spec.Wasm.Image
	}
	if d.image == "" {
		return nil, name, fmt.Errorf("%s: only images can be signed: remove verify, or set image", name)
	}
	return d, name, nil
}

// verifyImage verifies one image and prints its signer.
func verifyImage(cmd *cobra.Command, name, image string, r signature.Requirement) error {
	got, err := verifySignature(cmd.Context(), image, r)
	if err != nil {
		return fmt.Errorf("verify %s: %w", name, err)
	}
	printer.Fprintf(cmd.OutOrStdout(), "%s: signed by %s\n", name, got)
	return nil
}

func verifySignature(ctx context.Context, image string, r signature.Requirement) (string, error) {
	reference, err := oci.ParseReference(image)
	if err != nil {
		return "", exit.AsUsage(err)
	}
	if reference.Tag == "" && reference.Digest == "" {
		return "", exit.Usagef("the image has no digest or tag: add one")
	}
	credential, err := oci.UserCredential(ctx, reference)
	if err != nil {
		return "", err
	}
	client, err := egress.New(egress.Config{AllowPrivate: true, AllowLoopbackHTTP: true, RevealAddresses: true})
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	return source.VerifyImage(ctx, oci.NewRepository(client, reference, credential), reference, r)
}

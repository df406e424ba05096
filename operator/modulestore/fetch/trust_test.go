package fetch

import (
	"errors"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
)

func TestTrust_EachRequirementHasToBeMet(t *testing.T) {
	inline := "package gleaner"
	own, clusters := v1alpha1.Signer{PublicKey: "own"}, v1alpha1.Signer{PublicKey: "cluster"}
	verify := &v1alpha1.SignatureVerification{Signers: []v1alpha1.Signer{own}}
	for name, c := range map[string]struct {
		trust   Trust
		spec    v1alpha1.PolicyModuleSpec
		want    []string // the public keys
		refused string
	}{
		"nothing is required":                    {spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &inline}}},
		"by the resource":                        {spec: v1alpha1.PolicyModuleSpec{Verify: verify}, want: []string{"own"}},
		"by the operator":                        {trust: Trust{Signers: []v1alpha1.Signer{clusters}}, want: []string{"cluster"}},
		"by both":                                {trust: Trust{Signers: []v1alpha1.Signer{clusters}}, spec: v1alpha1.PolicyModuleSpec{Verify: verify}, want: []string{"cluster", "own"}},
		"required, and the resource has signers": {trust: Trust{Required: true}, spec: v1alpha1.PolicyModuleSpec{Verify: verify}, want: []string{"own"}},
		"required, and it has none": {trust: Trust{Required: true}, spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &inline}},
			refused: "the operator requires signatures: use an image that is signed, and write its signers in spec.verify"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Fetcher{Trust: c.trust}
			s, err := f.sourceOf(t.Context(), modulestore.Resource{Spec: c.spec})
			if c.refused != "" {
				if fault := (*source.Error)(nil); !errors.As(err, &fault) || fault.Reason != source.NotSigned || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("sourceOf() = %v, want NotSigned: %s", err, c.refused)
				}
				return
			}
			if err != nil || len(s.Signatures) != len(c.want) {
				t.Fatalf("sourceOf() = %d signatures, %v; want %d", len(s.Signatures), err, len(c.want))
			}
			for i, want := range c.want {
				if got := s.Signatures[i].Signers[0].PublicKey; got != want {
					t.Errorf("requirement %d is %q, want %q", i, got, want)
				}
			}
		})
	}
}

func TestTrust_IdentitiesAreVerifiedWithTheTrustedRoot(t *testing.T) {
	trust := Trust{TrustedRoot: []byte("root"), Signers: []v1alpha1.Signer{{Identity: &v1alpha1.SignerIdentity{Issuer: "i", Subject: "s", SubjectRegExp: "r"}}}}
	r := trust.Requirement(trust.Signers)
	if string(r.TrustedRoot) != "root" || len(r.Signers) != 1 || *r.Signers[0].Identity != (signature.Identity{Issuer: "i", Subject: "s", SubjectRegExp: "r"}) {
		t.Errorf("Requirement() = %+v", r)
	}
	if invalid := (*signature.ConfigError)(nil); !errors.As(trust.Validate(), &invalid) {
		t.Errorf("Validate() = %v, want a ConfigError", trust.Validate())
	}
}

package fetch

import (
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
)

// Trust is who has to sign modules. The zero value requires no signatures but those that
// resources require.
type Trust struct {
	// Required rejects modules without a verified signature.
	Required bool
	// Signers have to sign every module, in addition to the signers of its resource. Empty:
	// the signers of the resource are sufficient.
	Signers []v1alpha1.Signer
	// TrustedRoot is the trusted_root.json that verifies identities. Empty: identities are
	// not trusted.
	TrustedRoot []byte
}

// Validate reports invalid signers. The error is a *signature.ConfigError.
func (t Trust) Validate() error {
	_, err := signature.New(t.Requirement(t.Signers))
	return err
}

// CheckSigners reports invalid signers in spec.verify of a module. Whether the operator has what verifies them is not
// checked.
func CheckSigners(m modulestore.Resource) error {
	if m.Spec.Verify == nil {
		return nil
	}
	return signature.CheckSigners(Trust{}.Requirement(m.Spec.Verify.Signers).Signers)
}

// requirements returns who has to sign a module.
func (t Trust) requirements(m modulestore.Resource) ([]signature.Requirement, error) {
	var all []signature.Requirement
	if len(t.Signers) != 0 {
		all = append(all, t.Requirement(t.Signers))
	}
	if v := m.Spec.Verify; v != nil {
		all = append(all, t.Requirement(v.Signers))
	}
	if t.Required && len(all) == 0 {
		return nil, &source.Error{Reason: source.NotSigned, Message: "the operator requires signatures: use an image that is signed, and write its signers in spec.verify"}
	}
	return all, nil
}

// Requirement returns the requirement that one of the signers has signed.
func (t Trust) Requirement(signers []v1alpha1.Signer) signature.Requirement {
	r := signature.Requirement{TrustedRoot: t.TrustedRoot}
	for _, s := range signers {
		to := signature.Signer{PublicKey: s.PublicKey}
		if i := s.Identity; i != nil {
			to.Identity = &signature.Identity{Issuer: i.Issuer, Subject: i.Subject, SubjectRegExp: i.SubjectRegExp}
		}
		r.Signers = append(r.Signers, to)
	}
	return r
}

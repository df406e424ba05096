package run

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore/fetch"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
)

// signatureOptions are the flags of run for signatures of modules.
type signatureOptions struct {
	requireSignatures bool
	trustedSigners    string
	trustedRoot       string
}

func (o *signatureOptions) addTo(flags *pflag.FlagSet) {
	flags.BoolVar(&o.requireSignatures, "require-signatures", o.requireSignatures,
		"reject modules that are not images with a verified signature, also modules that are inline, in a ConfigMap or at a URL")
	flags.StringVar(&o.trustedSigners, "trusted-signers", o.trustedSigners,
		"`file` with signers in the form of spec.verify; each module must be signed by one of them, in addition to the signers of its resource")
	flags.StringVar(&o.trustedRoot, "trusted-root", o.trustedRoot,
		"`file` with the trusted_root.json of a sigstore deployment; it verifies identities, and is required for them")
}

// maxTrustFile is the maximum size in bytes of a file of signatureOptions.
const maxTrustFile = 1 << 20

// trust reads the files.
func (o *signatureOptions) trust() (fetch.Trust, error) {
	t := fetch.Trust{Required: o.requireSignatures}
	var wrong []error
	if o.trustedRoot != "" {
		data, err := readTrustFile(o.trustedRoot)
		if err == nil {
			err = signature.CheckTrustedRoot(data)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--trusted-root=%s: %w", o.trustedRoot, err))
		}
		t.TrustedRoot = data
	}
	if o.trustedSigners != "" && len(wrong) == 0 {
		var err error
		if t.Signers, err = readSigners(o.trustedSigners); err == nil {
			err = t.Validate()
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--trusted-signers=%s: %w", o.trustedSigners, err))
		}
	}
	return t, errors.Join(wrong...)
}

func readSigners(file string) ([]v1alpha1.Signer, error) {
	data, err := readTrustFile(file)
	if err != nil {
		return nil, err
	}
	var v v1alpha1.SignatureVerification
	if err := yaml.UnmarshalStrict(data, &v); err != nil {
		return nil, fmt.Errorf("%w: use a list of signers, as in spec.verify of a PolicyModule", err)
	}
	return v.Signers, nil
}

func readTrustFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTrustFile+1))
	if err == nil && len(data) > maxTrustFile {
		err = fmt.Errorf("it is larger than %d bytes", maxTrustFile)
	}
	return data, err
}

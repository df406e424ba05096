package cosign

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

const module = `package gleaner

collect := {"decision": "Orphan", "reason": "it is data"}
`

// registries are registries with and without the API for referrers: what is attached to an image is found in different ways.
var registries = map[string][]registry.Option{
	"ReferrersAPI": {registry.WithReferrersSupport(true)},
	"ReferrersTag": nil,
}

func TestVerify_ImagesThatCosignHasSigned(t *testing.T) {
	for name, options := range registries {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, options)
			image := f.push("keep:v1")
			f.gleanerFails("it is not signed", "module", "verify", image, "--key", "cosign.pub")

			// An attestation has the same subject, and says something else.
			f.write("predicate.json", `{"result": "vulnerable"}`)
			f.mustCosign("attest", "--key", "cosign.key", "--signing-config", "offline.json", "--predicate", "predicate.json", "--type", "custom", "--yes", image)
			f.gleanerFails("it is not signed", "module", "verify", image, "--key", "cosign.pub")

			f.mustCosign("sign", "--key", "cosign.key", "--signing-config", "offline.json", "--yes", image)
			if out := f.mustGleaner("module", "verify", image, "--key", "cosign.pub"); !strings.HasPrefix(out, image+": signed by public key sha256:") {
				t.Errorf("verify prints %q", out)
			}
			f.gleanerFails("it is not by a trusted public key", "module", "verify", image, "--key", "other.pub")

			// Another module with the same tag is not signed.
			f.write("policy.rego", module+"\n# changed\n")
			f.push("keep:v1")
			f.gleanerFails("it is not signed", "module", "verify", image, "--key", "cosign.pub")
		})
	}
}

func TestPush_SignKey_IsVerifiedByCosign(t *testing.T) {
	for name, options := range registries {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, options)
			image := f.push("keep:v1", "--sign-key", "cosign.key")
			if out := f.mustCosign("verify", "--key", "cosign.pub", "--insecure-ignore-tlog", image); !strings.Contains(out, "https://sigstore.dev/cosign/sign/v1") {
				t.Errorf("cosign verify prints %q", out)
			}
			unsigned := f.push("unsigned:v1")
			for image, key := range map[string]string{image: "other.pub", unsigned: "cosign.pub"} {
				if out, err := f.cosign("verify", "--key", key, "--insecure-ignore-tlog", image); err == nil {
					t.Errorf("cosign verify --key %s %s succeeds: %q", key, image, out)
				}
			}
		})
	}
}

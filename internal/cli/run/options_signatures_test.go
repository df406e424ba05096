package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const trustedKey = `signers:
- publicKey: |
    -----BEGIN PUBLIC KEY-----
PEM    -----END PUBLIC KEY-----
`

func TestTrust_ReadsTheFilesOrSaysWhatToWriteInstead(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const der = "    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt\n    6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==\n"
	signers := write("signers.yaml", strings.Replace(trustedKey, "PEM", der, 1))
	for name, c := range map[string]struct {
		options signatureOptions
		want    string // part of the error; empty: none
	}{
		"nothing":        {},
		"signers":        {options: signatureOptions{requireSignatures: true, trustedSigners: signers}},
		"no file":        {options: signatureOptions{trustedSigners: filepath.Join(folder, "missing")}, want: "--trusted-signers="},
		"not signers":    {options: signatureOptions{trustedSigners: write("a.yaml", "signer: []")}, want: "use a list of signers, as in spec.verify"},
		"no signers":     {options: signatureOptions{trustedSigners: write("b.yaml", "signers: []")}, want: "no signers: add a publicKey or an identity"},
		"not a root":     {options: signatureOptions{trustedRoot: write("root.json", "{}")}, want: "use the trusted_root.json"},
		"too large":      {options: signatureOptions{trustedRoot: write("large.json", strings.Repeat(" ", maxTrustFile+1))}, want: "it is larger than 1048576 bytes"},
		"identity alone": {options: signatureOptions{trustedSigners: write("c.yaml", "signers: [{identity: {issuer: https://example.com, subject: a}}]")}, want: "requires a trusted root: start the operator with --trusted-root"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.options.trust()
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("trust() = %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || got.Required != c.options.requireSignatures || (len(got.Signers) == 1) != (c.options.trustedSigners != "") {
				t.Errorf("trust() = %+v, %v", got, err)
			}
		})
	}
}

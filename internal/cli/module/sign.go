package module

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gleaner-dev/gleaner/policies/source/oci"
	"github.com/gleaner-dev/gleaner/policies/source/signature"
)

// passwordVariable is the environment variable with the password of a private key: that of
// cosign, which makes such keys.
const passwordVariable = "COSIGN_PASSWORD"

// readSignKey reads the private key of --sign-key. Empty: nil.
func readSignKey(file string) (*signature.PrivateKey, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--sign-key: %w", err)
	}
	var password []byte
	if text, ok := os.LookupEnv(passwordVariable); ok {
		password = []byte(text)
	}
	key, err := signature.ParsePrivateKey(pem, password)
	if errors.Is(err, signature.ErrPassword) {
		return nil, fmt.Errorf("--sign-key=%s: %w: set $%s", file, err, passwordVariable)
	}
	if err != nil {
		return nil, fmt.Errorf("--sign-key=%s: %w", file, err)
	}
	return key, nil
}

// attachSignature signs an image and attaches the signature to it.
func attachSignature(ctx context.Context, r *oci.Repository, digest string, key *signature.PrivateKey) error {
	bundle, err := key.Sign(digest)
	if err != nil {
		return err
	}
	_, err = r.Attach(ctx, digest, oci.Attachment{ArtifactType: signature.BundleMediaType, Data: bundle, Annotations: signature.Annotations()})
	return err
}

package archive

import (
	"bytes"
	"errors"
	"fmt"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Open returns the object of an entry, which is the one that the header describes. A body that
// is not encrypted needs no identities.
//
// The error is ErrIdentity if the body is encrypted and no identity matches, ErrTooLarge if the
// object would be above MaxObjectBytes, and otherwise ErrCorrupt.
func Open(h Header, body []byte, identities ...age.Identity) (*unstructured.Unstructured, error) {
	o, err := open(h, body, identities)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", h.Object, err)
	}
	return o, nil
}

func open(h Header, body []byte, identities []age.Identity) (*unstructured.Unstructured, error) {
	if err := VerifyBody(h, body); err != nil {
		return nil, err
	}
	if h.Recipients > 0 {
		var err error
		if body, err = decrypt(h, body, identities); err != nil {
			return nil, err
		}
	}
	plain, err := Decompress(body)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	if err := utiljson.Unmarshal(plain, &object); err != nil {
		return nil, fmt.Errorf("decode: %w: %w", ErrCorrupt, err)
	}
	o := &unstructured.Unstructured{Object: object}
	if got := ReferenceOf(o); got != h.Object {
		return nil, fmt.Errorf("%w: the body is that of %s %s with UID %q, and the header that of %s %s with UID %q", ErrCorrupt,
			shorten(got.APIVersion), shorten(got.String()), shorten(string(got.UID)), h.Object.APIVersion, h.Object, h.Object.UID)
	}
	return o, nil
}

func decrypt(h Header, body []byte, identities []age.Identity) ([]byte, error) {
	if len(identities) == 0 {
		return nil, fmt.Errorf("%w: it is encrypted to %s: pass --identity FILE", ErrIdentity, count(h.Recipients, "recipient"))
	}
	r, err := age.Decrypt(bytes.NewReader(body), identities...)
	var mismatch *age.NoIdentityMatchError
	if errors.As(err, &mismatch) {
		return nil, fmt.Errorf("%w: it is encrypted to %s, and the %s in the identity file cannot decrypt it",
			ErrIdentity, count(h.Recipients, "recipient"), count(len(identities), "identity"))
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w: %w", ErrCorrupt, err)
	}
	data, err := readAll(r)
	if errors.Is(err, ErrTooLarge) {
		return nil, fmt.Errorf("decrypt: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w: %w", ErrCorrupt, err)
	}
	return data, nil
}

// count returns a number with a noun.
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case noun == "identity":
		return fmt.Sprintf("%d identities", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

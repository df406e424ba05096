package intents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"golang.org/x/net/http/httpguts"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	authorization = "Authorization"
	contentSHA256 = "X-Amz-Content-Sha256"
)

// hostHeaders are those that the host writes for a grant, by canonical name.
func hostHeaders(grant policies.HTTP) []string {
	var names []string
	for name := range maps.Keys(grant.Headers) {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	if grant.Basic != nil {
		names = append(names, authorization)
	}
	if grant.SigV4 != nil {
		names = append(names, authorization, contentSHA256, "X-Amz-Date", "X-Amz-Security-Token")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// authorize adds a grant's credentials to a request, and hides them. Nothing that
// the module wrote is overwritten: it would wonder.
func (x *exchange) authorize(ctx context.Context, grant policies.HTTP, r *http.Request, body []byte) error {
	for _, name := range hostHeaders(grant) {
		if _, ok := r.Header[name]; ok {
			return problemf(hostabi.ErrorNotGranted, "the host writes the header %s of requests to %s: leave it out", name, origin(r.URL))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(grant.Headers)) {
		ref := grant.Headers[name]
		value, err := x.credential(ctx, ref)
		if err != nil {
			return err
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return problemf(hostabi.ErrorUnavailable, "entry %s of Secret %s, which a grant names, can't be a header: it has several lines, or a control character",
				ref.Key, ref.NamespacedName)
		}
		r.Header.Set(name, value)
	}
	if grant.Basic != nil {
		if err := x.basic(ctx, *grant.Basic, r); err != nil {
			return err
		}
	}
	if grant.SigV4 != nil {
		return x.sign(ctx, *grant.SigV4, r, body)
	}
	return nil
}

// credential reads a value that is hidden from then on.
func (x *exchange) credential(ctx context.Context, ref policies.SecretKey) (string, error) {
	value, err := x.vault.secret(ctx, x.on, ref)
	if err != nil {
		return "", err
	}
	x.hidden.add(value)
	return value, nil
}

func (x *exchange) basic(ctx context.Context, basic policies.Basic, r *http.Request) error {
	user, err := x.credential(ctx, basic.Username)
	if err != nil {
		return err
	}
	password, err := x.credential(ctx, basic.Password)
	if err != nil {
		return err
	}
	if strings.Contains(user, ":") {
		return problemf(hostabi.ErrorUnavailable, "entry %s of Secret %s, which a grant names, can't be a user name: it has a colon in it",
			basic.Username.Key, basic.Username.NamespacedName)
	}
	r.SetBasicAuth(user, password)
	x.hidden.add(r.Header.Get(authorization))
	return nil
}

func (x *exchange) sign(ctx context.Context, how policies.SigV4, r *http.Request, body []byte) error {
	var keys aws.Credentials
	var err error
	if keys.AccessKeyID, err = x.credential(ctx, how.AccessKeyID); err != nil {
		return err
	}
	if keys.SecretAccessKey, err = x.credential(ctx, how.SecretAccessKey); err != nil {
		return err
	}
	if how.SessionToken != nil {
		if keys.SessionToken, err = x.credential(ctx, *how.SessionToken); err != nil {
			return err
		}
	}
	if !httpguts.ValidHeaderFieldValue(keys.AccessKeyID) || !httpguts.ValidHeaderFieldValue(keys.SessionToken) {
		return problemf(hostabi.ErrorUnavailable, "the access key's ID or the session token, which a grant names, can't be in a header: it has several lines, or a control character")
	}
	if _, err := queryOf(r.URL.RawQuery); err != nil {
		return err
	}
	r.URL.RawPath = escapePath(r.URL.Path)
	sum := sha256.Sum256(body)
	payload := hex.EncodeToString(sum[:])
	isS3 := how.Service == "s3" || strings.HasPrefix(how.Service, "s3-")
	if isS3 {
		r.Header.Set(contentSHA256, payload)
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = isS3 })
	if err := signer.SignHTTP(ctx, keys, r, payload, how.Service, how.Region, x.options.Now()); err != nil {
		return fmt.Errorf("sign a request to %s: %w", origin(r.URL), err)
	}
	signed := r.Header.Get(authorization)
	x.hidden.add(signed)
	if _, signature, ok := strings.Cut(signed, "Signature="); ok {
		x.hidden.add(signature)
	}
	return nil
}

// escapePath writes a path as it is signed: all but unreserved characters by %.
func escapePath(path string) string {
	var b strings.Builder
	for i := range len(path) {
		switch c := path[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~/", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

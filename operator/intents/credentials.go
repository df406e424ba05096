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

// hostHeaders returns the canonical names of the headers that the host sets for a grant.
func hostHeaders(grant policies.HTTPRule) []string {
	var names []string
	for name := range maps.Keys(grant.Headers) {
		names = append(names, http.CanonicalHeaderKey(name))
	}
	if grant.BasicAuth != nil {
		names = append(names, authorization)
	}
	if grant.SigV4 != nil {
		names = append(names, authorization, contentSHA256, "X-Amz-Date", "X-Amz-Security-Token")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// authorize adds a grant's credentials to a request, and redacts them from then on. It
// returns an error rather than overwrite a header of the module.
func (x *httpExchange) authorize(ctx context.Context, grant policies.HTTPRule, r *http.Request, body []byte) error {
	for _, name := range hostHeaders(grant) {
		if _, ok := r.Header[name]; ok {
			return errorf(hostabi.ErrorNotGranted, "header %s of requests to %s is set by the host: remove it", name, origin(r.URL))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(grant.Headers)) {
		ref := grant.Headers[name]
		value, err := x.credential(ctx, ref)
		if err != nil {
			return err
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return errorf(hostabi.ErrorUnavailable, "key %s of Secret %s, referenced by a grant, is not a valid header value: it contains a line break or control character",
				ref.Key, ref.NamespacedName)
		}
		r.Header.Set(name, value)
	}
	if grant.BasicAuth != nil {
		if err := x.basic(ctx, *grant.BasicAuth, r); err != nil {
			return err
		}
	}
	if grant.SigV4 != nil {
		return x.sign(ctx, *grant.SigV4, r, body)
	}
	return nil
}

// credential reads a value, which is redacted from then on.
func (x *httpExchange) credential(ctx context.Context, ref policies.SecretKey) (string, error) {
	value, err := x.secrets.secretValue(ctx, x.identity, ref)
	if err != nil {
		return "", err
	}
	x.redactor.add(value)
	return value, nil
}

func (x *httpExchange) basic(ctx context.Context, basic policies.BasicAuth, r *http.Request) error {
	user, err := x.credential(ctx, basic.Username)
	if err != nil {
		return err
	}
	password, err := x.credential(ctx, basic.Password)
	if err != nil {
		return err
	}
	if strings.Contains(user, ":") {
		return errorf(hostabi.ErrorUnavailable, "key %s of Secret %s, referenced by a grant, is not a valid user name: it contains a colon",
			basic.Username.Key, basic.Username.NamespacedName)
	}
	r.SetBasicAuth(user, password)
	x.redactor.add(r.Header.Get(authorization))
	return nil
}

func (x *httpExchange) sign(ctx context.Context, config policies.SigV4, r *http.Request, body []byte) error {
	var keys aws.Credentials
	var err error
	if keys.AccessKeyID, err = x.credential(ctx, config.AccessKeyID); err != nil {
		return err
	}
	if keys.SecretAccessKey, err = x.credential(ctx, config.SecretAccessKey); err != nil {
		return err
	}
	if config.SessionToken != nil {
		if keys.SessionToken, err = x.credential(ctx, *config.SessionToken); err != nil {
			return err
		}
	}
	if !httpguts.ValidHeaderFieldValue(keys.AccessKeyID) || !httpguts.ValidHeaderFieldValue(keys.SessionToken) {
		return errorf(hostabi.ErrorUnavailable, "access key ID or session token, referenced by a grant, is not a valid header value: it contains a line break or control character")
	}
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	r.URL.RawPath = escapePath(r.URL.Path)
	sum := sha256.Sum256(body)
	payload := hex.EncodeToString(sum[:])
	isS3 := config.Service == "s3" || strings.HasPrefix(config.Service, "s3-")
	if isS3 {
		r.Header.Set(contentSHA256, payload)
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = isS3 })
	if err := signer.SignHTTP(ctx, keys, r, payload, config.Service, config.Region, x.options.Now()); err != nil {
		return fmt.Errorf("sign request to %s: %w", origin(r.URL), err)
	}
	signed := r.Header.Get(authorization)
	x.redactor.add(signed)
	if _, signature, ok := strings.Cut(signed, "Signature="); ok {
		x.redactor.add(signature)
	}
	return nil
}

// escapePath escapes a path as in the signature: all characters but the unreserved ones.
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

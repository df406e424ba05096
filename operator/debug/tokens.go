package debug

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const (
	maxTokenBytes    = 16 << 10 // bytes
	maxValidTokens   = 1024
	maxInvalidTokens = 4096
	validTTL         = time.Minute
	invalidTTL       = 30 * time.Second

	// knownTTL is how long a token that was valid has its own rate limit for reviews, so that
	// a flood of invalid tokens does not lock out existing clients.
	knownTTL = time.Hour
)

// tokenReviews authenticates bearer tokens. Clients can send any number of tokens, so results are
// cached by a keyed hash of the token, and the rate of reviews is limited.
type tokenReviews struct {
	review authenticator.Token // without a cache
	key    [sha256.Size]byte

	valid, invalid, known *cache.LRUExpireCache

	unknownThrottle, knownThrottle *throttle
}

func newTokenReviews(review authenticator.Token) *tokenReviews {
	t := &tokenReviews{
		review: review,
		valid:  cache.NewLRUExpireCache(maxValidTokens), invalid: cache.NewLRUExpireCache(maxInvalidTokens), known: cache.NewLRUExpireCache(maxValidTokens),
		unknownThrottle: newThrottle(tokenRate, tokenBurst, addressRate, addressBurst),
		knownThrottle:   newThrottle(tokenRate, tokenBurst, tokenRate, tokenBurst),
	}
	_, _ = rand.Read(t.key[:]) // never fails
	return t
}

// AuthenticateRequest implements authenticator.Request. The error is errTooManyReviews if the rate
// limit was exceeded.
func (t *tokenReviews) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	token, ok := bearerToken(r)
	if !ok {
		return nil, false, nil
	}
	hash := t.hash(token)
	if response, ok := t.valid.Get(hash); ok {
		return response.(*authenticator.Response), true, nil
	}
	if _, ok := t.invalid.Get(hash); ok {
		return nil, false, nil
	}
	var response *authenticator.Response
	var err error
	call := func() { response, ok, err = t.review.AuthenticateToken(r.Context(), token) }
	limit, key := t.unknownThrottle, addressOf(r)
	if _, known := t.known.Get(hash); known {
		limit, key = t.knownThrottle, hash
	}
	if busy := limit.try(key, call); busy != nil {
		return nil, false, busy
	}
	switch {
	case isOutage(err):
		return nil, false, err // the token may be valid
	case err != nil || !ok:
		t.invalid.Add(hash, struct{}{}, invalidTTL)
		t.known.Remove(hash)
		return nil, false, err
	}
	t.valid.Add(hash, response, validTTL)
	t.known.Add(hash, struct{}{}, knownTTL)
	return response, true, nil
}

// isOutage reports whether the review itself failed, as opposed to rejecting the token.
func isOutage(err error) bool {
	return errors.As(err, new(apierrors.APIStatus)) || errors.As(err, new(*url.Error)) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || wait.Interrupted(err)
}

func (t *tokenReviews) hash(token string) string {
	h := hmac.New(sha256.New, t.key[:])
	h.Write([]byte(token))
	return string(h.Sum(nil))
}

// bearerToken returns the bearer token of a request.
func bearerToken(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "bearer") && token != "" && len(token) <= maxTokenBytes
}

// addressOf returns the client address of a request; for IPv6, its /64 network.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	bits := 64
	if address = address.Unmap(); address.Is4() {
		bits = 32
	}
	network, err := address.WithZone("").Prefix(bits)
	if err != nil {
		return host
	}
	return network.String()
}

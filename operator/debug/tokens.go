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
	mostToken    = 16 << 10 // bytes
	tokensKept   = 1024
	failuresKept = 4096
	tokenLife    = time.Minute
	failureLife  = 30 * time.Second

	// knownLife is how long a token that was good is reviewed again without regard to
	// how many others are, so that nobody shuts out who uses the server already.
	knownLife = time.Hour
)

// tokens finds out whose a token is. Anybody can send any number of them, so what is
// known of one is remembered, by a keyed hash of it, and reviews are bounded.
type tokens struct {
	review authenticator.Token // remembers nothing
	key    [sha256.Size]byte

	good, bad, known *cache.LRUExpireCache

	strangers, friends *throttle
}

func newTokens(review authenticator.Token) *tokens {
	t := &tokens{
		review: review,
		good:   cache.NewLRUExpireCache(tokensKept), bad: cache.NewLRUExpireCache(failuresKept), known: cache.NewLRUExpireCache(tokensKept),
		strangers: newThrottle(tokenRate, tokenBurst, addressRate, addressBurst),
		friends:   newThrottle(tokenRate, tokenBurst, tokenRate, tokenBurst),
	}
	_, _ = rand.Read(t.key[:]) // it never fails
	return t
}

// AuthenticateRequest implements authenticator.Request. The error is errBusy if
// nobody was asked since too many are.
func (t *tokens) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	token, ok := bearer(r)
	if !ok {
		return nil, false, nil
	}
	hash := t.hash(token)
	if who, ok := t.good.Get(hash); ok {
		return who.(*authenticator.Response), true, nil
	}
	if _, ok := t.bad.Get(hash); ok {
		return nil, false, nil
	}
	var who *authenticator.Response
	var err error
	ask := func() { who, ok, err = t.review.AuthenticateToken(r.Context(), token) }
	door, key := t.strangers, addressOf(r)
	if _, known := t.known.Get(hash); known {
		door, key = t.friends, hash
	}
	if busy := door.try(key, ask); busy != nil {
		return nil, false, busy
	}
	switch {
	case isOutage(err):
		return nil, false, err // nobody has said that the token is bad
	case err != nil || !ok:
		t.bad.Add(hash, struct{}{}, failureLife)
		t.known.Remove(hash)
		return nil, false, err
	}
	t.good.Add(hash, who, tokenLife)
	t.known.Add(hash, struct{}{}, knownLife)
	return who, true, nil
}

// isOutage tells an error of asking from what the API server says of a token.
func isOutage(err error) bool {
	return errors.As(err, new(apierrors.APIStatus)) || errors.As(err, new(*url.Error)) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || wait.Interrupted(err)
}

func (t *tokens) hash(token string) string {
	h := hmac.New(sha256.New, t.key[:])
	h.Write([]byte(token))
	return string(h.Sum(nil))
}

// bearer is the token that a request has in its header.
func bearer(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "bearer") && token != "" && len(token) <= mostToken
}

// addressOf is where a request comes from. Of IPv6 a whole network is one client's.
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

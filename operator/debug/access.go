package debug

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const (
	allowedTTL   = time.Minute
	deniedTTL    = 30 * time.Second
	maxDecisions = 8192
)

// accessReviews reviews what users may do. A user who may not get everything needs reviews for many
// objects, so decisions are cached and the rate of reviews is limited.
type accessReviews struct {
	review    authorizer.Authorizer // without a cache
	decisions *cache.LRUExpireCache
	throttle  *throttle
}

func newAccessReviews(review authorizer.Authorizer) *accessReviews {
	return &accessReviews{
		review: review, decisions: cache.NewLRUExpireCache(maxDecisions),
		throttle: newThrottle(accessRate, accessBurst, userRate, userBurst),
	}
}

// allowed waits for the rate limit. The error is errTooManyReviews if the context ends first.
func (a *accessReviews) allowed(ctx context.Context, attributes authorizer.AttributesRecord) (bool, error) {
	key, err := cacheKey(attributes)
	if err != nil {
		return false, err
	}
	if known, ok := a.decisions.Get(key); ok {
		return known.(bool), nil
	}
	var decision authorizer.Decision
	if a.throttle.wait(ctx, attributes.User.GetName(), func() { decision, _, err = a.review.Authorize(ctx, attributes) }) != nil {
		return false, errTooManyReviews
	}
	if err != nil {
		return false, err
	}
	allowed, ttl := decision == authorizer.DecisionAllow, deniedTTL
	if allowed {
		ttl = allowedTTL
	}
	a.decisions.Add(key, allowed, ttl)
	return allowed, nil
}

// cacheKey returns the cache key of a review: a hash of all attributes.
func cacheKey(attributes authorizer.AttributesRecord) ([sha256.Size]byte, error) {
	user := attributes.User
	data, err := json.Marshal([]any{
		user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra(), attributes.Verb, attributes.Path, attributes.ResourceRequest,
		attributes.APIGroup, attributes.APIVersion, attributes.Resource, attributes.Subresource, attributes.Namespace, attributes.Name,
	})
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encode attributes: %w", err)
	}
	return sha256.Sum256(data), nil
}

type budgetKey struct{}

// A reviewBudget is the time limit for the reviews of one request.
type reviewBudget struct {
	deadline time.Time
	header   http.Header // of the response
}

func withBudget(ctx context.Context, header http.Header) context.Context {
	return context.WithValue(ctx, budgetKey{}, &reviewBudget{time.Now().Add(maxReviewTime), header})
}

// withReviewDeadline returns a context with the deadline of a request's reviews.
func withReviewDeadline(ctx context.Context) context.Context {
	if b, ok := ctx.Value(budgetKey{}).(*reviewBudget); ok {
		ctx, cancel := context.WithDeadline(ctx, b.deadline)
		context.AfterFunc(ctx, cancel)
		return ctx
	}
	return ctx
}

// warnIncomplete warns the client that the response may be incomplete.
func warnIncomplete(ctx context.Context) {
	if b, ok := ctx.Value(budgetKey{}).(*reviewBudget); ok {
		b.header.Set("Warning", `299 gleaner "response is incomplete, too many access reviews: request single objects, or send fewer requests"`)
	}
}

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
	allowedLife = time.Minute
	deniedLife  = 30 * time.Second
	answersKept = 8192
)

// access finds out what users may do. A user who may not get everything is asked about
// for many objects, so answers are remembered, and reviews are bounded.
type access struct {
	review   authorizer.Authorizer // remembers nothing
	answers  *cache.LRUExpireCache
	throttle *throttle
}

func newAccess(review authorizer.Authorizer) *access {
	return &access{
		review: review, answers: cache.NewLRUExpireCache(answersKept),
		throttle: newThrottle(accessRate, accessBurst, userRate, userBurst),
	}
}

// may waits for its turn. The error is errBusy if that did not come before the
// context's end.
func (a *access) may(ctx context.Context, what authorizer.AttributesRecord) (bool, error) {
	key, err := keyOf(what)
	if err != nil {
		return false, err
	}
	if known, ok := a.answers.Get(key); ok {
		return known.(bool), nil
	}
	var decision authorizer.Decision
	if a.throttle.wait(ctx, what.User.GetName(), func() { decision, _, err = a.review.Authorize(ctx, what) }) != nil {
		return false, errBusy
	}
	if err != nil {
		return false, err
	}
	allowed, life := decision == authorizer.DecisionAllow, deniedLife
	if allowed {
		life = allowedLife
	}
	a.answers.Add(key, allowed, life)
	return allowed, nil
}

// keyOf tells questions apart, by all that the API server is told.
func keyOf(what authorizer.AttributesRecord) ([sha256.Size]byte, error) {
	user := what.User
	data, err := json.Marshal([]any{
		user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra(), what.Verb, what.Path, what.ResourceRequest,
		what.APIGroup, what.APIVersion, what.Resource, what.Subresource, what.Namespace, what.Name,
	})
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encode question: %w", err)
	}
	return sha256.Sum256(data), nil
}

type budgetKey struct{}

// budget is what one request may take.
type budget struct {
	until  time.Time
	header http.Header // of its response
}

func withBudget(ctx context.Context, header http.Header) context.Context {
	return context.WithValue(ctx, budgetKey{}, &budget{time.Now().Add(reviewTime), header})
}

// budgetOf is the context in which a request's reviews are to end.
func budgetOf(ctx context.Context) context.Context {
	if b, ok := ctx.Value(budgetKey{}).(*budget); ok {
		ctx, cancel := context.WithDeadline(ctx, b.until)
		context.AfterFunc(ctx, cancel)
		return ctx
	}
	return ctx
}

// cutShort tells the client that it was not asked about everything.
func cutShort(ctx context.Context) {
	if b, ok := ctx.Value(budgetKey{}).(*budget); ok {
		b.header.Set("Warning", `299 gleaner "not everything could be asked about: ask for single objects, or for less often"`)
	}
}

package debug

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	webhooktoken "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// A Guard authenticates and authorizes requests by the API server: the bearer token by a
// TokenReview, then the path as a non-resource URL, and then `get` for each object in the
// response. The rate of reviews is limited.
type Guard struct {
	authenticator authenticator.Request
	access        *accessReviews
	inFlight      userRequests
}

var reviewBackoff = &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}

const reviewTimeout = 10 * time.Second // for one attempt

// NewGuard returns a Guard that uses the client for reviews. The client must be allowed to
// create tokenreviews and subjectaccessreviews.
func NewGuard(client kubernetes.Interface) (*Guard, error) {
	review, err := webhooktoken.NewFromInterface(client.AuthenticationV1(), nil, *reviewBackoff, reviewTimeout, webhooktoken.AuthenticatorMetrics{
		RecordRequestTotal:   func(context.Context, string) {}, // the client counts API requests
		RecordRequestLatency: func(context.Context, string, float64) {},
	})
	if err != nil {
		return nil, fmt.Errorf("create authenticator: %w", err)
	}
	reviewer, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		WebhookRetryBackoff:       reviewBackoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("create authorizer: %w", err)
	}
	return &Guard{authenticator: group.NewAuthenticatedGroupAdder(newTokenReviews(review)), access: newAccessReviews(reviewer)}, nil
}

// Filter returns a handler that admits requests before next serves them.
func (g *Guard) Filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are supported", http.StatusMethodNotAllowed)
			return
		}
		response, ok, err := g.authenticator.AuthenticateRequest(r)
		switch {
		case errors.Is(err, errTooManyReviews):
			writeTooManyRequests(w)
			return
		case err != nil || !ok:
			log.V(1).Info("Request denied: no valid token", "path", r.URL.Path, "error", err)
			http.Error(w, "Unauthorized: send a bearer token that this cluster accepts", http.StatusUnauthorized)
			return
		}
		release, ok := g.inFlight.acquire(response.User.GetName())
		if !ok {
			writeTooManyRequests(w)
			return
		}
		defer release()
		g.authorize(log, w, r.WithContext(request.WithUser(r.Context(), response.User)), next)
	}), nil
}

func writeTooManyRequests(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "Too many requests: try again later", http.StatusTooManyRequests)
}

// authorize serves a request if its user may get the path.
func (g *Guard) authorize(log logr.Logger, w http.ResponseWriter, r *http.Request, next http.Handler) {
	client, _ := request.UserFrom(r.Context())
	verb := strings.ToLower(r.Method)
	allowed, err := g.access.allowed(r.Context(), authorizer.AttributesRecord{User: client, Verb: verb, Path: r.URL.Path})
	if err != nil {
		log.Error(err, "Access review failed", "path", r.URL.Path)
		http.Error(w, "access review failed", http.StatusInternalServerError)
		return
	}
	if !allowed {
		http.Error(w, fmt.Sprintf("Forbidden: user %q needs a ClusterRole with the verb %q on the nonResourceURL %q",
			client.GetName(), verb, r.URL.Path), http.StatusForbidden)
		return
	}
	next.ServeHTTP(w, r.WithContext(withBudget(r.Context(), w.Header())))
}

// ReadAccess reports whether a client may get an object.
type ReadAccess func(record.Object) bool

// AllowAll returns a Sight that allows all objects, for servers without a guard.
func AllowAll(*http.Request) ReadAccess { return func(record.Object) bool { return true } }

// ReadAccess returns a Sight for the client of a request that passed Filter: the client sees the
// objects that it may `get`. For a client that may get everything, one review suffices.
func (g *Guard) ReadAccess(resourceOf func(schema.GroupVersionKind) (schema.GroupVersionResource, bool)) func(*http.Request) ReadAccess {
	return func(r *http.Request) ReadAccess {
		client, ok := request.UserFrom(r.Context())
		if !ok {
			return func(record.Object) bool { return false }
		}
		ctx := withReviewDeadline(r.Context())
		get := authorizer.AttributesRecord{User: client, Verb: "get", ResourceRequest: true}
		all := get
		all.APIGroup, all.APIVersion, all.Resource = "*", "*", "*"
		if allowed, err := g.access.allowed(ctx, all); err == nil && allowed {
			return AllowAll(r)
		}
		return g.readAccessPerObject(ctx, client, resourceOf)
	}
}

// readAccessPerObject reviews access to the resource in all namespaces first, then in the object's
// namespace, and to the single object only if neither is allowed. If a review fails, access
// is denied.
func (g *Guard) readAccessPerObject(ctx context.Context, client user.Info, resourceOf func(schema.GroupVersionKind) (schema.GroupVersionResource, bool)) ReadAccess {
	decisions := map[scope]bool{} // cached for the duration of the request
	return func(o record.Object) bool {
		resource, ok := resourceOf(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind))
		if !ok {
			return false
		}
		for _, at := range []scope{{resource: resource}, {resource, o.Namespace, ""}, {resource, o.Namespace, o.Name}} {
			allowed, known := decisions[at]
			if !known {
				var err error
				allowed, err = g.access.allowed(ctx, authorizer.AttributesRecord{
					User: client, Verb: "get", ResourceRequest: true, Namespace: at.namespace, Name: at.name,
					APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource,
				})
				if errors.Is(err, errTooManyReviews) {
					warnIncomplete(ctx)
				}
				allowed = allowed && err == nil
				decisions[at] = allowed
			}
			if allowed {
				return true
			}
		}
		return false
	}
}

// A scope is that of an access review: a resource in all namespaces or in one, or a
// single object.
type scope struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

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

// Guard lets in whom the API server knows and allows: a bearer token is
// reviewed, then the path has to be allowed as a non-resource URL, and then,
// for what shows objects, `get` on each object shown. How much clients can have the
// API server asked is bounded.
type Guard struct {
	authenticator authenticator.Request
	access        *access
	crowd         crowd
}

var reviewBackoff = &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}

const reviewTimeout = 10 * time.Second // of one attempt

// NewGuard returns a Guard that asks the client's API server. The client needs
// to be allowed to create tokenreviews and subjectaccessreviews.
func NewGuard(client kubernetes.Interface) (*Guard, error) {
	review, err := webhooktoken.NewFromInterface(client.AuthenticationV1(), nil, *reviewBackoff, reviewTimeout, webhooktoken.AuthenticatorMetrics{
		RecordRequestTotal:   func(context.Context, string) {}, // calls of the API server are counted by the client
		RecordRequestLatency: func(context.Context, string, float64) {},
	})
	if err != nil {
		return nil, fmt.Errorf("make authenticator: %w", err)
	}
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		WebhookRetryBackoff:       reviewBackoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make authorizer: %w", err)
	}
	return &Guard{authenticator: group.NewAuthenticatedGroupAdder(newTokens(review)), access: newAccess(may)}, nil
}

// Filter stands before every path of a server.
func (g *Guard) Filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are answered", http.StatusMethodNotAllowed)
			return
		}
		who, ok, err := g.authenticator.AuthenticateRequest(r)
		switch {
		case errors.Is(err, errBusy):
			tooMany(w)
			return
		case err != nil || !ok:
			log.V(1).Info("Refused a request without a good token", "path", r.URL.Path, "error", err)
			http.Error(w, "Unauthorized: send a bearer token that this cluster accepts", http.StatusUnauthorized)
			return
		}
		leave, ok := g.crowd.enter(who.User.GetName())
		if !ok {
			tooMany(w)
			return
		}
		defer leave()
		g.admit(log, w, r.WithContext(request.WithUser(r.Context(), who.User)), next)
	}), nil
}

func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "Too many requests: try again later", http.StatusTooManyRequests)
}

// admit answers a request, if its user may ask for the path.
func (g *Guard) admit(log logr.Logger, w http.ResponseWriter, r *http.Request, next http.Handler) {
	who, _ := request.UserFrom(r.Context())
	verb := strings.ToLower(r.Method)
	allowed, err := g.access.may(r.Context(), authorizer.AttributesRecord{User: who, Verb: verb, Path: r.URL.Path})
	if err != nil {
		log.Error(err, "Could not ask whether a request is allowed", "path", r.URL.Path)
		http.Error(w, "whether this is allowed could not be asked", http.StatusInternalServerError)
		return
	}
	if !allowed {
		http.Error(w, fmt.Sprintf("Forbidden: user %q needs a ClusterRole with the verb %q on the nonResourceURL %q",
			who.GetName(), verb, r.URL.Path), http.StatusForbidden)
		return
	}
	next.ServeHTTP(w, r.WithContext(withBudget(r.Context(), w.Header())))
}

// Sight is what one client may see.
type Sight func(record.Object) bool

// Everything is the sight of a server without a guard.
func Everything(*http.Request) Sight { return func(record.Object) bool { return true } }

// Sight returns what the client of a request that passed Filter may see: the
// objects that it may `get`. Whoever may get everything is asked about once.
func (g *Guard) Sight(resourceOf func(schema.GroupVersionKind) (schema.GroupVersionResource, bool)) func(*http.Request) Sight {
	return func(r *http.Request) Sight {
		who, ok := request.UserFrom(r.Context())
		if !ok {
			return func(record.Object) bool { return false }
		}
		ctx := budgetOf(r.Context())
		get := authorizer.AttributesRecord{User: who, Verb: "get", ResourceRequest: true}
		all := get
		all.APIGroup, all.APIVersion, all.Resource = "*", "*", "*"
		if allowed, err := g.access.may(ctx, all); err == nil && allowed {
			return Everything(r)
		}
		return g.each(ctx, who, resourceOf)
	}
}

// each asks about a resource as a whole first, then in the object's namespace,
// and about the single object only if neither is allowed. An object that can't
// be asked about is not shown.
func (g *Guard) each(ctx context.Context, who user.Info, resourceOf func(schema.GroupVersionKind) (schema.GroupVersionResource, bool)) Sight {
	answers := map[place]bool{} // for the length of the request
	return func(o record.Object) bool {
		resource, ok := resourceOf(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind))
		if !ok {
			return false
		}
		for _, at := range []place{{resource: resource}, {resource, o.Namespace, ""}, {resource, o.Namespace, o.Name}} {
			allowed, asked := answers[at]
			if !asked {
				var err error
				allowed, err = g.access.may(ctx, authorizer.AttributesRecord{
					User: who, Verb: "get", ResourceRequest: true, Namespace: at.namespace, Name: at.name,
					APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource,
				})
				if errors.Is(err, errBusy) {
					cutShort(ctx)
				}
				allowed = allowed && err == nil
				answers[at] = allowed
			}
			if allowed {
				return true
			}
		}
		return false
	}
}

// place is what a client may or may not get: a resource, in a namespace or in
// all of them, or one object.
type place struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

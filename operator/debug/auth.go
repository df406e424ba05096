package debug

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// Guard lets in whom the API server knows and allows: a bearer token is
// reviewed, then the path has to be allowed as a non-resource URL, and then,
// for what shows objects, `get` on each object shown.
type Guard struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
}

var reviewBackoff = &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}

// NewGuard returns a Guard that asks the client's API server. The client needs
// to be allowed to create tokenreviews and subjectaccessreviews.
func NewGuard(client kubernetes.Interface) (*Guard, error) {
	who, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserver.AnonymousAuthConfig{Enabled: false},
		CacheTTL:                 time.Minute,
		TokenAccessReviewClient:  client.AuthenticationV1(),
		TokenAccessReviewTimeout: 10 * time.Second,
		WebhookRetryBackoff:      reviewBackoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make authenticator: %w", err)
	}
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             time.Minute,
		DenyCacheTTL:              30 * time.Second,
		WebhookRetryBackoff:       reviewBackoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("make authorizer: %w", err)
	}
	return &Guard{authenticator: who, authorizer: may}, nil
}

// Filter stands before every path of a server.
func (g *Guard) Filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok, err := g.authenticator.AuthenticateRequest(r)
		if err != nil || !ok {
			log.V(1).Info("Refused a request without a good token", "path", r.URL.Path, "error", err)
			http.Error(w, "Unauthorized: send a bearer token that this cluster accepts", http.StatusUnauthorized)
			return
		}
		allowed, err := g.may(r.Context(), authorizer.AttributesRecord{
			User: who.User, Verb: strings.ToLower(r.Method), Path: r.URL.Path,
		})
		if err != nil {
			log.Error(err, "Could not ask whether a request is allowed", "path", r.URL.Path)
			http.Error(w, "whether this is allowed could not be asked", http.StatusInternalServerError)
			return
		}
		if !allowed {
			http.Error(w, fmt.Sprintf("Forbidden: user %q needs a ClusterRole with the verb %q on the nonResourceURL %q",
				who.User.GetName(), strings.ToLower(r.Method), r.URL.Path), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), who.User)))
	}), nil
}

func (g *Guard) may(ctx context.Context, what authorizer.AttributesRecord) (bool, error) {
	decision, _, err := g.authorizer.Authorize(ctx, what)
	return decision == authorizer.DecisionAllow, err
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
		get := authorizer.AttributesRecord{User: who, Verb: "get", ResourceRequest: true}
		all := get
		all.APIGroup, all.APIVersion, all.Resource = "*", "*", "*"
		if allowed, err := g.may(r.Context(), all); err == nil && allowed {
			return Everything(r)
		}
		return g.each(r.Context(), who, resourceOf)
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
				allowed, err = g.may(ctx, authorizer.AttributesRecord{
					User: who, Verb: "get", ResourceRequest: true, Namespace: at.namespace, Name: at.name,
					APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource,
				})
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

package replicas

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// tokenLifetimeSeconds is the minimum lifetime of tokens that API servers accept, in seconds.
const tokenLifetimeSeconds = 600

// credentials returns the client's credentials without the settings for the API server: its
// address, CA, and client certificates, which the operator does not accept.
func (w Options) credentials(ctx context.Context) (*rest.Config, error) {
	if w.ServiceAccount == "" {
		c := rest.CopyConfig(w.Config)
		c.APIPath, c.ContentConfig, c.TLSClientConfig, c.Impersonate = "", rest.ContentConfig{}, rest.TLSClientConfig{}, rest.ImpersonationConfig{}
		c.Transport, c.WrapTransport, c.Dial, c.Proxy, c.RateLimiter = nil, nil, nil, nil, nil
		return c, nil
	}
	namespace, name, _ := strings.Cut(w.ServiceAccount, "/")
	kube, err := kubernetes.NewForConfig(w.Config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenLifetimeSeconds)}}
	request, err = kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create token for service account %s: %w", w.ServiceAccount, err)
	}
	return &rest.Config{BearerToken: request.Status.Token}, nil
}

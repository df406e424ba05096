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

// tokenLife is the shortest that API servers give, in seconds.
const tokenLife = 600

// credentials is who asks, without what is the API server's own: its address, its
// certificates, and client certificates, which the operator does not know.
func (w Where) credentials(ctx context.Context) (*rest.Config, error) {
	if w.TokenOf == "" {
		c := rest.CopyConfig(w.Config)
		c.APIPath, c.ContentConfig, c.TLSClientConfig, c.Impersonate = "", rest.ContentConfig{}, rest.TLSClientConfig{}, rest.ImpersonationConfig{}
		c.Transport, c.WrapTransport, c.Dial, c.Proxy, c.RateLimiter = nil, nil, nil, nil, nil
		return c, nil
	}
	namespace, name, _ := strings.Cut(w.TokenOf, "/")
	kube, err := kubernetes.NewForConfig(w.Config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenLife)}}
	request, err = kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("get a token of the service account %s: %w", w.TokenOf, err)
	}
	return &rest.Config{BearerToken: request.Status.Token}, nil
}

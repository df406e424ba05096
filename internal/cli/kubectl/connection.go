package kubectl

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const reachTimeout = 10 * time.Second

// CheckConnection returns an error unless the API server responds and authenticates the client; it
// would serve its version to anonymous clients. An API server that fails later is waited for,
// but one that is unreachable at startup is a configuration error.
func CheckConnection(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.Timeout = reachTimeout
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("connect to the API server at %s: %w; check --kubeconfig and that the server is running", config.Host, err)
	}
	return nil
}

// Package replicas queries the debug endpoints of the operator's replicas, through a
// port-forward to each pod, or at a URL.
//
// It changes nothing. Each replica keeps its own records, so all of them are queried, and
// those that can't be reached are reported.
package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// PodSelector selects the operator's pods, by the labels in its manifests.
	PodSelector = "app.kubernetes.io/name=gleaner,app.kubernetes.io/component=operator"

	// port is the default port of /metrics and /debug/gc.
	port     = 8443
	portName = "https"

	requestTimeout  = 10 * time.Second // for one request
	maxResponseSize = 256 << 20        // maximum bytes of a response
)

// Options configures how the operator is reached, and the client's credentials. Config is
// required.
type Options struct {
	Config    *rest.Config // for the API server, with the client's credentials
	Namespace string       // of the operator's pods; empty: all
	Endpoint  string       // URL of one replica, instead of pods
	CAFile    string       // CA certificates of the endpoint; empty: the system's

	// ServiceAccount is a service account, as namespace/name, whose token is used; empty: the token of
	// Config.
	ServiceAccount string
}

// Replica is one replica of the operator.
type Replica struct {
	Name string // of its pod, or the URL
	Pod  *corev1.Pod

	base   string
	client *http.Client
	close  func()
	err    error // why it can't be queried
}

// Find finds the replicas, and opens a connection to each. Replicas that can't be reached are
// included, and return an error when queried. It is not an error if there are none.
func Find(ctx context.Context, w Options) ([]*Replica, error) {
	credentials, err := w.credentials(ctx)
	if err != nil {
		return nil, err
	}
	if w.Endpoint != "" {
		r, err := w.atEndpoint(credentials)
		if err != nil {
			return nil, err
		}
		return []*Replica{r}, nil
	}
	pods, err := Pods(ctx, w)
	if err != nil {
		return nil, err
	}
	var found []*Replica
	for i := range pods {
		found = append(found, w.inPod(ctx, &pods[i], credentials))
	}
	return found, nil
}

// Pods lists the operator's pods that have not terminated.
func Pods(ctx context.Context, w Options) ([]corev1.Pod, error) {
	kube, err := kubernetes.NewForConfig(w.Config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	list, err := kube.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: PodSelector})
	if err != nil {
		return nil, fmt.Errorf("list the operator's pods: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}), nil
}

// Close closes the connections to replicas.
func Close(all []*Replica) {
	for _, r := range all {
		if r.close != nil {
			r.close()
		}
	}
}

// Validate returns an error if a field is invalid, with what to write instead.
func (w Options) Validate() error {
	if namespace, name, ok := strings.Cut(w.ServiceAccount, "/"); w.ServiceAccount != "" && (!ok || namespace == "" || name == "") {
		return fmt.Errorf("invalid service account %q: write NAMESPACE/NAME", w.ServiceAccount)
	}
	if w.Endpoint == "" {
		return nil
	}
	at, err := url.Parse(w.Endpoint)
	switch {
	case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "":
		return fmt.Errorf("invalid endpoint %q: write a URL, such as https://127.0.0.1:8443", w.Endpoint)
	case at.Scheme == "http" && !onLoopback(at.Hostname()):
		return fmt.Errorf("endpoint %s would receive the token unencrypted: use https://, or a loopback address", w.Endpoint)
	default:
		return nil
	}
}

func (w Options) atEndpoint(credentials *rest.Config) (*Replica, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	at, err := url.Parse(w.Endpoint)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(credentials)
	switch {
	case at.Scheme == "http": // without authentication, see --insecure-debug
		config = &rest.Config{}
	case w.CAFile != "":
		config.TLSClientConfig = rest.TLSClientConfig{CAFile: w.CAFile}
	case onLoopback(at.Hostname()): // a manual port-forward, with the operator's self-signed certificate
		config.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	default:
		config.TLSClientConfig = rest.TLSClientConfig{}
	}
	client, err := newHTTPClient(config, w.Endpoint)
	if err != nil {
		return nil, err
	}
	return &Replica{Name: w.Endpoint, base: strings.TrimSuffix(w.Endpoint, "/"), client: client}, nil
}

func onLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (w Options) inPod(ctx context.Context, pod *corev1.Pod, credentials *rest.Config) *Replica {
	r := &Replica{Name: pod.Namespace + "/" + pod.Name, Pod: pod}
	if pod.Status.Phase != corev1.PodRunning {
		r.err = fmt.Errorf("pod is %s", pod.Status.Phase)
		return r
	}
	local, end, err := forward(ctx, w.Config, pod, portOf(pod))
	if err != nil {
		r.err = err
		return r
	}
	// The operator's certificate is self-signed, so it is not verified: the API server, which
	// forwards the port, ensures that this is the pod's process.
	config := rest.CopyConfig(credentials)
	config.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	r.base, r.close = fmt.Sprintf("https://127.0.0.1:%d", local), end
	r.client, r.err = newHTTPClient(config, r.base)
	return r
}

func portOf(pod *corev1.Pod) int {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == portName {
				return int(p.ContainerPort)
			}
		}
	}
	return port
}

// newHTTPClient returns an HTTP client with the credentials of a config.
func newHTTPClient(config *rest.Config, base string) (*http.Client, error) {
	config.Host = base
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", base, err)
	}
	return &http.Client{Transport: transport, Timeout: requestTimeout}, nil
}

// Get reads the JSON at a path of a replica.
func (r *Replica) Get(ctx context.Context, path string, into any) error {
	a, err := r.read(ctx, path)
	if err != nil {
		return err
	}
	return a.decode(into)
}

// reply is a response of a replica.
type reply struct {
	code       int
	body       []byte
	retry      time.Duration  // delay of the retry, for status 429
	warning    string         // that the response is incomplete, with the reason
	clockAhead *time.Duration // how far its clock is ahead of this machine's; nil: unknown
}

func (a reply) decode(into any) error {
	if a.code != http.StatusOK {
		return statusError(a.code, string(a.body))
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("read response: %w; check that the address is Gleaner's", err)
	}
	return nil
}

// statusError returns the error for a status code, with what to do.
func statusError(code int, body string) error {
	body = strings.TrimSpace(body)
	switch code {
	case http.StatusUnauthorized:
		return errors.New("unauthorized: the kubeconfig has no valid bearer token: " +
			"set --token, or --token-of NAMESPACE/SERVICEACCOUNT")
	case http.StatusForbidden:
		return fmt.Errorf("%s; the ClusterRole gleaner-debug-reader grants this permission", body)
	default:
		return fmt.Errorf("unexpected status %d: %s", code, body)
	}
}

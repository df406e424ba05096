// Package replicas reaches the processes of the operator, and asks their debug
// endpoints: by the API server's port-forward to each pod, or at a URL.
//
// It changes nothing. Each replica keeps records of its own, so all of them are
// asked, and one that can't be reached is told, not left out.
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
	// Selector finds the operator's pods, by the labels that its manifests set.
	Selector = "app.kubernetes.io/name=gleaner,app.kubernetes.io/component=operator"

	// port is the operator's, for /metrics and /debug/gc, unless its pod names another.
	port     = 8443
	portName = "https"

	patience   = 10 * time.Second // for one answer
	mostAnswer = 256 << 20        // bytes of one answer
)

// Where says where the operator is, and who asks. Config is required.
type Where struct {
	Config    *rest.Config // of the API server, with who asks
	Namespace string       // of the operator's pods; empty: looked for in all
	Endpoint  string       // a URL of one replica, in place of the pods
	CAFile    string       // what the endpoint's certificate is signed by; empty: the system's authorities

	// TokenOf is a service account, as namespace/name, in whose name it is asked;
	// empty: with what Config has. It is for a Config that has no token.
	TokenOf string
}

// Replica is one process of the operator.
type Replica struct {
	Name string // of its pod, or its URL
	Pod  *corev1.Pod

	base   string
	client *http.Client
	close  func()
	err    error // why it can't be asked
}

// Find finds the replicas, and opens a way to each. A replica that can't be
// reached is among them, and says so when it is asked. None is no error.
func Find(ctx context.Context, w Where) ([]*Replica, error) {
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

// Pods lists the operator's pods that have not ended.
func Pods(ctx context.Context, w Where) ([]corev1.Pod, error) {
	kube, err := kubernetes.NewForConfig(w.Config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	list, err := kube.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{LabelSelector: Selector})
	if err != nil {
		return nil, fmt.Errorf("list the operator's pods: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}), nil
}

// Close ends the ways to replicas.
func Close(all []*Replica) {
	for _, r := range all {
		if r.close != nil {
			r.close()
		}
	}
}

// Validate returns what is wrong with where the operator is said to be, and what to
// write instead.
func (w Where) Validate() error {
	if namespace, name, ok := strings.Cut(w.TokenOf, "/"); w.TokenOf != "" && (!ok || namespace == "" || name == "") {
		return fmt.Errorf("can't read the service account %q: write NAMESPACE/NAME", w.TokenOf)
	}
	if w.Endpoint == "" {
		return nil
	}
	at, err := url.Parse(w.Endpoint)
	switch {
	case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "":
		return fmt.Errorf("can't read the endpoint %q: write a URL, such as https://127.0.0.1:8443", w.Endpoint)
	case at.Scheme == "http" && !onLoopback(at.Hostname()):
		return fmt.Errorf("%s is not encrypted, and what is asked with is a secret: write https://, or an address on loopback", w.Endpoint)
	default:
		return nil
	}
}

func (w Where) atEndpoint(credentials *rest.Config) (*Replica, error) {
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
	case onLoopback(at.Hostname()): // a port-forward of one's own, to a certificate that the operator has made itself
		config.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	default:
		config.TLSClientConfig = rest.TLSClientConfig{}
	}
	client, err := clientOf(config, w.Endpoint)
	if err != nil {
		return nil, err
	}
	return &Replica{Name: w.Endpoint, base: strings.TrimSuffix(w.Endpoint, "/"), client: client}, nil
}

func onLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (w Where) inPod(ctx context.Context, pod *corev1.Pod, credentials *rest.Config) *Replica {
	r := &Replica{Name: pod.Namespace + "/" + pod.Name, Pod: pod}
	if pod.Status.Phase != corev1.PodRunning {
		r.err = fmt.Errorf("its pod is %s", pod.Status.Phase)
		return r
	}
	local, end, err := forward(ctx, w.Config, pod, portOf(pod))
	if err != nil {
		r.err = err
		return r
	}
	// The operator makes its certificate itself, so it proves nothing: that it is
	// the pod's process is the API server's word, which has forwarded the port.
	config := rest.CopyConfig(credentials)
	config.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	r.base, r.close = fmt.Sprintf("https://127.0.0.1:%d", local), end
	r.client, r.err = clientOf(config, r.base)
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

// clientOf returns a client that asks with a config's credentials.
func clientOf(config *rest.Config, base string) (*http.Client, error) {
	config.Host = base
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", base, err)
	}
	return &http.Client{Transport: transport, Timeout: patience}, nil
}

// Get reads what a replica shows at a path, as JSON.
func (r *Replica) Get(ctx context.Context, path string, into any) error {
	a, err := r.read(ctx, path)
	if err != nil {
		return err
	}
	return a.into(into)
}

// answer is what a replica answered.
type answer struct {
	code  int
	body  []byte
	retry time.Duration  // when to ask again, if it answers that it is busy
	ahead *time.Duration // its clock before this machine's; nil: it does not say
}

func (a answer) into(into any) error {
	if a.code != http.StatusOK {
		return refusal(a.code, string(a.body))
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("read its answer: %w; is it Gleaner that listens there?", err)
	}
	return nil
}

// refusal says what to do about a refusal.
func refusal(code int, body string) error {
	body = strings.TrimSpace(body)
	switch code {
	case http.StatusUnauthorized:
		return errors.New("it wants a bearer token, which your kubeconfig has none of, or no good one: " +
			"give --token, or --token-of NAMESPACE/SERVICEACCOUNT of an account that may ask")
	case http.StatusForbidden:
		return fmt.Errorf("%s; the ClusterRole gleaner-debug-reader gives that", body)
	default:
		return fmt.Errorf("it answers %d: %s", code, body)
	}
}

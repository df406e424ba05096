package replicas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // client-go is still made of it
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// forwardTimeout is the timeout for a port-forward to become ready.
const forwardTimeout = 15 * time.Second

// forward opens a local port that forwards to a port of a pod, as kubectl port-forward does.
// End closes it and waits.
func forward(ctx context.Context, config *rest.Config, pod *corev1.Pod, port int) (local uint16, end func(), err error) {
	dialer, err := newDialer(config, pod)
	if err != nil {
		return 0, nil, fmt.Errorf("forward port: %w", err)
	}
	stop, ready, ended, failed := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var stderr bytes.Buffer // read once the forwarder has ended
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, &stderr)
	if err != nil {
		return 0, nil, fmt.Errorf("forward port: %w", err)
	}
	go func() {
		defer close(ended)
		failed <- f.ForwardPorts()
	}()
	end = func() {
		close(stop)
		<-ended
	}
	timer := time.NewTimer(forwardTimeout)
	defer timer.Stop()
	select {
	case err := <-failed:
		if err == nil {
			err = errors.New(strings.TrimSpace(stderr.String()))
		}
		return 0, nil, fmt.Errorf("forward port: %w; this requires permission to create pods/portforward in namespace %s", err, pod.Namespace)
	case <-ctx.Done():
		end()
		return 0, nil, ctx.Err()
	case <-timer.C:
		end()
		return 0, nil, fmt.Errorf("forward port: not ready within %s", forwardTimeout)
	case <-ready:
	}
	ports, err := f.GetPorts()
	if err != nil || len(ports) != 1 {
		end()
		return 0, nil, fmt.Errorf("forward port: got %d ports: %w", len(ports), err)
	}
	return ports[0].Local, end, nil
}

// newDialer uses websockets, with a fallback to SPDY.
func newDialer(config *rest.Config, pod *corev1.Pod) (httpstream.Dialer, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	at := kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	fallback := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	websocket, err := portforward.NewSPDYOverWebsocketDialer(at, config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialer(websocket, fallback, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

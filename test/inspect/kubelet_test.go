package inspect

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// node is the node of the operator's Pod.
const node = "here"

// startKubelet starts the part of a kubelet that forwards ports, with the library that
// kubelets use, and binds one of the operator's two Pods to its node.
func (s *testbed) startKubelet(ctx context.Context) error {
	certificate, _, err := s.cluster.ServingCertificate()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.kubelet = &http.Server{Handler: http.HandlerFunc(s.servePortForward), ReadHeaderTimeout: time.Minute}
	go func() {
		_ = s.kubelet.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}}))
	}() // stopped by Close
	port, err := strconv.Atoi(strings.TrimPrefix(listener.Addr().String(), "127.0.0.1:"))
	if err != nil {
		return err
	}
	if _, err := s.kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	status := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, port)
	if _, err := s.kube.CoreV1().Nodes().PatchStatus(ctx, node, []byte(status)); err != nil {
		return err
	}
	return s.bindPod(ctx)
}

// servePortForward serves /portForward/NAMESPACE/POD.
func (s *testbed) servePortForward(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 3 || parts[0] != "portForward" {
		http.NotFound(w, r)
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, s, parts[2], "", options, time.Minute, time.Minute, portforward.SupportedProtocols)
}

// PortForward implements portforward.PortForwarder: the operator's address differs from
// that in a Pod.
func (s *testbed) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	if port != 8443 {
		return fmt.Errorf("nothing listens on port %d", port)
	}
	var d net.Dialer
	there, err := d.DialContext(ctx, "tcp", s.metrics)
	if err != nil {
		return err
	}
	defer there.Close()
	ends := make(chan error, 2)
	go func() { _, err := io.Copy(there, stream); ends <- err }()
	go func() { _, err := io.Copy(stream, there); ends <- err }()
	return <-ends
}

// bindPod binds one of the operator's Pods to the node, and marks it as ready.
func (s *testbed) bindPod(ctx context.Context) error {
	pods := s.kube.CoreV1().Pods(namespace)
	var pod *corev1.Pod
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 {
			return false, err
		}
		pod = &list.Items[0]
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for two pods: %w", err)
	}
	err = pods.Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	status := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	return s.waitUntilReady(ctx)
}

// waitUntilReady waits until the operator accepts connections.
func (s *testbed) waitUntilReady(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		var d net.Dialer
		connection, err := d.DialContext(ctx, "tcp", s.metrics)
		if err == nil {
			err = connection.Close()
		}
		return err == nil, nil
	})
}

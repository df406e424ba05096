package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/devcluster/node"
	"github.com/gleaner-dev/gleaner/operator/noderun"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

const (
	mebi       = 1 << 20
	imageSize  = 4 * mebi   // of the layer of a test's image; the file system has it twice: packed, and unpacked
	filesystem = 160 * mebi // of images
)

// box is a containerd without a kubelet, with a small file system for its images, and an agent. Pods are made through the CRI.
type box struct {
	*testing.T
	node    *node.Node
	api     client.Client
	runtime cri.RuntimeService
	images  cri.ImageManagerService
}

// boxes counts them, for their names.
var boxes atomic.Int32

// startBox starts a runtime whose Node has no Pods, and an agent.
func startBox(t *testing.T) *box {
	t.Helper()
	t.Parallel() // they mostly wait
	b := newBox(t, node.Options{Name: fmt.Sprintf("box%d", boxes.Add(1)), ImageFilesystem: filesystem, RuntimeOnly: true})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node.Name(), Labels: map[string]string{"box": b.node.Name()}}}
	if err := b.api.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.api.Delete(context.WithoutCancel(t.Context()), n) })
	b.startAgent()
	return b
}

func newBox(t *testing.T, o node.Options) *box {
	t.Helper()
	startCluster(t)
	config := shared.cluster.RESTConfig()
	if err := inprocess.CreateCRDs(t, config); err != nil {
		t.Fatal(err)
	}
	var options manager.Options
	if err := noderun.Configure(&options, o.Name); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(config, client.Options{Scheme: options.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), shared.cluster, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	b := &box{T: t, node: n, api: api}
	ctx := t.Context()
	if b.runtime, err = criclient.NewRemoteRuntimeServiceBuilder().WithEndpoint(n.RuntimeEndpoint()).WithConnectionTimeout(timeout).Build(ctx); err != nil {
		t.Fatal(err)
	}
	if b.images, err = criclient.NewRemoteImageServiceBuilder().WithEndpoint(n.RuntimeEndpoint()).WithConnectionTimeout(timeout).Build(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = errors.Join(b.runtime.Close(context.WithoutCancel(ctx)), b.images.Close(context.WithoutCancel(ctx)))
	})
	return b
}

// startAgent runs the agent until the test ends.
func (b *box) startAgent() {
	b.Helper()
	options := manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: logr.Discard()}
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		options.Logger = ctrl.Log
	}
	if err := noderun.Configure(&options, b.node.Name()); err != nil {
		b.Fatal(err)
	}
	mgr, err := ctrl.NewManager(shared.cluster.RESTConfig(), options)
	if err != nil {
		b.Fatal(err)
	}
	err = noderun.AddTo(mgr, noderun.Options{
		Node: b.node.Name(), RuntimeEndpoint: b.node.RuntimeEndpoint(), RuntimeTimeout: 10 * time.Second, ImageFilesystem: b.node.ImageFilesystem(),
		Metrics: prometheus.NewRegistry(), Log: options.Logger,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
}

// apply creates a policy for this node, or replaces its spec.
func (b *box) apply(name, spec string) {
	b.Helper()
	p := &v1alpha1.NodeRetentionPolicy{ObjectMeta: metav1.ObjectMeta{Name: b.node.Name() + "-" + name}}
	_, err := ctrl.CreateOrUpdate(b.Context(), b.api, p, func() error {
		p.Spec = v1alpha1.NodeRetentionPolicySpec{}
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			return err
		}
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"box": b.node.Name()}}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = b.api.Delete(context.WithoutCancel(b.Context()), p) })
}

// status returns the status of the node.
func (b *box) status() (v1alpha1.NodeRetentionStatus, error) {
	var n v1alpha1.NodeRetention
	err := b.api.Get(b.Context(), client.ObjectKey{Name: b.node.Name()}, &n)
	return n.Status, err
}

// eventually waits until a check succeeds.
func (b *box) eventually(check func() error) {
	b.Helper()
	devtest.Eventually(b, timeout, check)
}

// reference returns the name of a test's image.
func reference(name string) string { return "gleaner.test/" + name + ":1" }

// linger returns the program of the image node.Linger, which waits for SIGTERM.
func linger(t testing.TB) []byte {
	t.Helper()
	content, err := os.ReadFile(shared.node.LingerPath())
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// add gives the node images, each of about imageSize, that run as node.Linger does.
func (b *box) add(names ...string) {
	b.Helper()
	for _, name := range names {
		if err := b.node.Import(b.Context(), reference(name), b.program(name)); err != nil {
			b.Fatal(err)
		}
	}
}

// program returns the program of an image, a file of imageSize that differs from that of others and runs as node.Linger does.
func (b *box) program(name string) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), name)
	content := make([]byte, imageSize)
	copy(content[copy(content, linger(b)):], name) // what follows a program is not read
	if err := os.WriteFile(program, content, 0o600); err != nil {
		b.Fatal(err)
	}
	return program
}

// has returns which of these images the node has.
func (b *box) has(names ...string) (found []string, err error) {
	list, err := b.images.ListImages(b.Context(), nil)
	for _, name := range names {
		if slices.ContainsFunc(list, func(i *runtimeapi.Image) bool { return slices.Contains(i.GetRepoTags(), reference(name)) }) {
			found = append(found, name)
		}
	}
	return found, err
}

// expectImages waits until the node has exactly these of some images.
func (b *box) expectImages(of []string, want ...string) {
	b.Helper()
	b.eventually(func() error {
		got, err := b.has(of...)
		if err == nil && !slices.Equal(got, want) {
			s, errStatus := b.status()
			err = fmt.Errorf("the node has %q, want %q; status: %+v (%w)", got, want, s, errStatus)
		}
		return err
	})
}

// runPod runs a Pod with one container through the CRI, on the machine's network, and returns the IDs of its sandbox and its container.
func (b *box) runPod(name, image string, args ...string) (sandbox, container string) {
	b.Helper()
	config := sandboxConfig(name)
	sandbox, err := b.runtime.RunPodSandbox(b.Context(), config, "")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = b.runtime.RemovePodSandbox(context.WithoutCancel(b.Context()), sandbox) })
	return sandbox, b.runContainer(sandbox, config, 0, image, args...)
}

// sandboxConfig configures the sandbox of a Pod on the machine's network.
func sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "shop", Uid: name},
		Labels:   map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": name},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
}

// runContainer runs another attempt of the container of a Pod.
func (b *box) runContainer(sandbox string, config *runtimeapi.PodSandboxConfig, attempt uint32, image string, args ...string) string {
	b.Helper()
	id, err := b.createContainer(sandbox, config, attempt, image, args...)
	if err == nil {
		err = b.runtime.StartContainer(b.Context(), id)
	}
	if err != nil {
		b.Fatal(err)
	}
	return id
}

// createContainer creates another attempt of the container of a Pod.
func (b *box) createContainer(sandbox string, config *runtimeapi.PodSandboxConfig, attempt uint32, image string, args ...string) (string, error) {
	labels := map[string]string{"io.kubernetes.container.name": "c"}
	for key, value := range config.Labels {
		labels[key] = value
	}
	return b.runtime.CreateContainer(b.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: attempt}, Labels: labels,
		Image: &runtimeapi.ImageSpec{Image: image}, Args: args,
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}, config)
}

// createPod creates a Pod on the node that nothing runs.
func (b *box) createPod(name, image string) {
	b.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: b.node.Name() + "-" + name, Namespace: metav1.NamespaceDefault},
		Spec:       corev1.PodSpec{NodeName: b.node.Name(), Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
	if err := b.api.Create(b.Context(), p); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = b.api.Delete(context.WithoutCancel(b.Context()), p, client.GracePeriodSeconds(0)) })
}

// expectEvent waits for an event about the node.
func (b *box) expectEvent(kind, reason, message string) {
	b.Helper()
	kube := kubernetes.NewForConfigOrDie(shared.cluster.RESTConfig())
	b.eventually(func() error {
		list, err := kube.CoreV1().Events(metav1.NamespaceDefault).List(b.Context(), metav1.ListOptions{
			FieldSelector: fields.Set{"involvedObject.kind": "Node", "involvedObject.name": b.node.Name(), "reason": reason}.String(),
		})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Type == kind && strings.Contains(e.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("no event with %q: %v", message, list.Items)
	})
}

// expectTotal returns an error unless the status has a number of images.
func (b *box) expectTotal(want int64) error {
	s, err := b.status()
	if err == nil && (s.Images == nil || s.Images.Total != want) {
		err = fmt.Errorf("images: %+v", s.Images)
	}
	return err
}

func (b *box) expectContainers(want []string) error {
	list, err := b.runtime.ListContainers(b.Context(), nil)
	if err != nil {
		return err
	}
	var got []string
	for _, c := range list {
		got = append(got, c.GetId())
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		return fmt.Errorf("containers %q, want %q", got, want)
	}
	return nil
}

// wake has the agent look at everything: the labels of its node change.
func (b *box) wake() {
	b.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"woken":%q}}}`, time.Now().Format("150405.000000000")))
	if err := b.api.Patch(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node.Name()}}, patch); err != nil {
		b.Fatal(err)
	}
}

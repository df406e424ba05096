package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

var boxes int

// startBox starts a runtime whose Node has no Pods, and an agent.
func startBox(t *testing.T) *box {
	t.Helper()
	boxes++
	b := newBox(t, node.Options{Name: fmt.Sprintf("box%d", boxes), ImageFilesystem: filesystem, RuntimeOnly: true})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node.Name(), Labels: map[string]string{"box": b.node.Name()}}}
	if err := b.api.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.api.Delete(context.Background(), n) })
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
	t.Cleanup(func() { _ = errors.Join(b.runtime.Close(context.Background()), b.images.Close(context.Background())) })
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
	ctx, cancel := context.WithCancel(context.Background())
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
	b.Cleanup(func() { _ = b.api.Delete(context.Background(), p) })
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
		program := filepath.Join(b.TempDir(), name)
		content := make([]byte, imageSize)
		copy(content[copy(content, linger(b)):], name) // what follows a program is not read
		if err := os.WriteFile(program, content, 0o600); err != nil {
			b.Fatal(err)
		}
		if err := b.node.Import(b.Context(), reference(name), program); err != nil {
			b.Fatal(err)
		}
	}
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
			err = fmt.Errorf("the node has %q, want %q; status: %+v (%v)", got, want, s, errStatus)
		}
		return err
	})
}

// runPod runs a Pod with one container through the CRI, on the machine's network, and returns the IDs of its sandbox and its container.
func (b *box) runPod(name, image string, args ...string) (sandbox, container string) {
	b.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "shop", Uid: name},
		Labels:   map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": name},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
	sandbox, err := b.runtime.RunPodSandbox(b.Context(), config, "")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = b.runtime.RemovePodSandbox(context.Background(), sandbox) })
	return sandbox, b.runContainer(sandbox, config, 0, image, args...)
}

// runContainer runs another attempt of the container of a Pod.
func (b *box) runContainer(sandbox string, config *runtimeapi.PodSandboxConfig, attempt uint32, image string, args ...string) string {
	b.Helper()
	labels := map[string]string{"io.kubernetes.container.name": "c"}
	for key, value := range config.Labels {
		labels[key] = value
	}
	id, err := b.runtime.CreateContainer(b.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: attempt}, Labels: labels,
		Image: &runtimeapi.ImageSpec{Image: image}, Args: args,
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}, config)
	if err != nil {
		b.Fatal(err)
	}
	if err := b.runtime.StartContainer(b.Context(), id); err != nil {
		b.Fatal(err)
	}
	return id
}

const clean = `{mode: Enforce, images: {highThresholdPercent: 1, lowThresholdPercent: 0, minAge: 0s}}`

func TestNodeRetention_ImagesInUsePinnedAndKept_AreNeverRemoved(t *testing.T) {
	b := startBox(t)
	all := []string{"a", "b", "c", "kept", "named", "pinned"}
	b.add(all...)
	sandbox, container := b.runPod("web", node.Linger, "1s")
	if err := b.node.Pin(t.Context(), reference("pinned")); err != nil {
		t.Fatal(err)
	}
	b.createPod("names", reference("named"))
	b.apply("keeps", `{mode: Enforce, images: {minAge: 0s, keep: ["gleaner.test/ke*"]}}`)
	b.apply("clean", clean)
	b.expectImages(all, "kept", "named", "pinned")

	status, err := b.runtime.ContainerStatus(t.Context(), container, false)
	if err != nil || status.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container does not run: %v %v", status.GetStatus().GetState(), err)
	}
	if s, err := b.runtime.PodSandboxStatus(t.Context(), sandbox, false); err != nil || s.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the sandbox is not ready: %v", err)
	}
	if i, err := b.images.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: node.Linger}, false); err != nil || i.GetImage() == nil {
		t.Errorf("the image of the sandbox is gone: %v", err)
	}
	b.eventually(func() error {
		s, err := b.status()
		switch {
		case err != nil:
			return err
		case s.Images == nil || s.Images.Removed != 3 || s.Images.Total != 4 || s.Images.InUse != 2 || s.Images.FreedBytes < 3*imageSize:
			return fmt.Errorf("images: %+v", s.Images)
		case len(s.RecentRemovals) != 3 || s.RecentRemovals[0].Reason != "Usage" || !strings.HasPrefix(s.RecentRemovals[0].Name, "gleaner.test/"):
			return fmt.Errorf("recent removals: %+v", s.RecentRemovals)
		case s.Reason != v1alpha1.ReasonTooLittleFreed: // 1% is not reached with what stays
			return fmt.Errorf("reason: %q", s.Reason)
		}
		return nil
	})
	b.expectEvent(corev1.EventTypeNormal, "RemovedByRetention", "removed 3 images")
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
	b.Cleanup(func() { _ = b.api.Delete(context.Background(), p, client.GracePeriodSeconds(0)) })
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

func TestNodeRetention_UnderPressure_TheLeastRecentlyUsedGoFirst_AndNoMoreThanNeeded(t *testing.T) {
	b := startBox(t)
	b.apply("limits", `{mode: Enforce, images: {highThresholdPercent: 45, lowThresholdPercent: 35, minAge: 0s}}`)
	first, second := []string{"a", "b", "c", "d"}, []string{"e", "f", "g", "h", "i"}
	b.add(first...) // each takes about five percent, and what it is unpacked from as much
	b.wake()
	b.eventually(func() error { return b.expectTotal(5) })
	b.add(second...)
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && (s.ImageFilesystem == nil || s.ImageFilesystem.UsedPercent >= 45 || s.Images.Removed == 0) {
			err = fmt.Errorf("status: %+v %+v", s.ImageFilesystem, s.Images)
		}
		return err
	})
	left, err := b.has(append(first, second...)...)
	if err != nil || len(left) < 5 || len(left) > 7 || left[len(left)-1] != "i" || slices.Contains(left, "a") && slices.Contains(left, "b") {
		t.Errorf("it has %q (%v)", left, err)
	}
}

// expectTotal returns an error unless the status has a number of images.
func (b *box) expectTotal(want int64) error {
	s, err := b.status()
	if err == nil && (s.Images == nil || s.Images.Total != want) {
		err = fmt.Errorf("images: %+v", s.Images)
	}
	return err
}

func TestNodeRetention_ExitedContainers_AreRemovedByNumber(t *testing.T) {
	b := startBox(t)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "web"},
		Labels:   map[string]string{"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "web"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
	sandbox, err := b.runtime.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for attempt := range uint32(4) {
		id := b.runContainer(sandbox, config, attempt, node.Linger, "0s")
		ids = append(ids, id)
		if attempt < 3 {
			if err := b.runtime.StopContainer(t.Context(), id, 5); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.apply("few", `{mode: Enforce, containers: {maxPerPodContainer: 1}}`)
	b.eventually(func() error { return b.expectContainers(ids[2:]) })
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && (s.Containers == nil || s.Containers.Removed != 2 || s.Containers.Exited != 1 || s.RecentRemovals[0].Name != "shop/web/c") {
			err = fmt.Errorf("containers: %+v %+v", s.Containers, s.RecentRemovals)
		}
		return err
	})

	// Its image is in use while the Pod runs. When it has ended, containerd removes it although a container refers to it.
	b.apply("clean", clean)
	b.add("a")
	b.expectImages([]string{"a"})
	if i, err := b.images.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: node.Linger}, false); err != nil || i.GetImage() == nil {
		t.Errorf("the image of a running container is gone: %v", err)
	}
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

func TestNodeRetention_Monitor_ShowsWhatWouldGo(t *testing.T) {
	b := startBox(t)
	b.add("a", "b")
	b.apply("clean", strings.Replace(clean, "Enforce", "Monitor", 1))
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && (s.Images == nil || s.Images.Due != 2 || len(s.NextRemovals) != 2 || s.NextRemovals[0].Reason != "Usage" || len(s.Policies) != 1) {
			err = fmt.Errorf("status: %+v", s)
		}
		return err
	})
	b.expectImages([]string{"a", "b"}, "a", "b")
}

func TestNodeRetention_RuntimeThatRestartsOrHangs_IsAskedAgain(t *testing.T) {
	b := startBox(t)
	b.add("a")
	b.apply("clean", clean)
	b.expectImages([]string{"a"})
	if err := b.node.RestartRuntime(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.add("b")
	b.wake()
	b.expectImages([]string{"b"})

	resume, err := b.node.StopRuntime()
	if err != nil {
		t.Fatal(err)
	}
	b.wake()
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && s.Reason != v1alpha1.ReasonRuntimeFailed {
			err = fmt.Errorf("reason %q", s.Reason)
		}
		return err
	})
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	b.add("c")
	b.wake()
	b.expectImages([]string{"c"})
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && s.Reason == v1alpha1.ReasonRuntimeFailed {
			err = fmt.Errorf("reason %q", s.Reason)
		}
		return err
	})
}

// wake has the agent look at everything: the labels of its node change.
func (b *box) wake() {
	b.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"woken":%q}}}`, time.Now().Format("150405.000000000")))
	if err := b.api.Patch(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node.Name()}}, patch); err != nil {
		b.Fatal(err)
	}
}

package node

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/devcluster/node"
)

const (
	namespace = "gleaner-node" // of config/node
	account   = "system:serviceaccount:" + namespace + ":gleaner-node"
	nodeClaim = "authentication.kubernetes.io/node-name"
)

// The Pod that config/node has on each node runs on a real kubelet whose own collection is off.
func TestDaemonSet_RemovesImagesBesideAKubelet_WithTheServiceAccountOfItsNode(t *testing.T) {
	b := newBox(t, node.Options{Name: "kubelet", ImageFilesystem: 768 * mebi, WithoutCollection: true})
	if _, err := shared.cluster.Kubectl(t.Context(), "label", "node", "kubelet", "box=kubelet"); err != nil {
		t.Fatal(err)
	}
	b.deploy()
	b.add("a", "b", "used")
	b.runPodOfKubelet("web", "used")

	b.apply("clean", clean)
	b.expectImages([]string{"a", "b", "used"}, "used")
	b.expectEvent(corev1.EventTypeNormal, "RemovedByRetention", "gleaner.test/")
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && (s.Images == nil || s.Images.Removed < 2 || s.ImageFilesystem == nil || s.ImageFilesystem.CapacityBytes != 768*mebi) {
			err = fmt.Errorf("status: %+v", s)
		}
		return err
	})

	out, err := exec.CommandContext(t.Context(), gleaner.Path(t), "preview", "retention", "--nodes", "--kubeconfig", shared.cluster.Kubeconfig()).CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^kubelet +\d+% `).Match(out) {
		t.Errorf("gleaner preview retention --nodes: %v\n%s", err, out)
	}

	t.Run("an image that a Pod names stays, whatever happens at the same time", func(t *testing.T) {
		b := &box{T: t, node: b.node, api: b.api, runtime: b.runtime, images: b.images}
		const all = 4
		for n := range all {
			b.createPodOfKubelet(fmt.Sprint("race", n), fmt.Sprint("race", n))
		}
		for n := range all { // they are never pulled: without them, the Pods would not run
			b.add(fmt.Sprint("race", n))
			b.wake()
		}
		for n := range all {
			b.expectRunning(metav1.NamespaceDefault, fmt.Sprint("kubelet-race", n))
		}
	})
	t.Run("it may write about its own node only", b.testOwnNode)
}

// deploy applies config/node, and runs the Pod of its DaemonSet: no scheduler would. The Pod has the network of the machine, since Pods
// of development nodes don't reach the API server otherwise.
func (b *box) deploy() {
	b.Helper()
	if err := b.node.Import(b.Context(), "ghcr.io/gleaner-dev/gleaner:development", gleaner.Path(b)); err != nil {
		b.Fatal(err)
	}
	if _, err := shared.cluster.Kubectl(b.Context(), "apply", "--server-side", "-k", "../../config/node"); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_, _ = shared.cluster.Kubectl(context.WithoutCancel(b.Context()), "delete", "daemonset,pods", "--all", "-n", namespace, "--grace-period=0", "--force")
		_, _ = shared.cluster.Kubectl(context.WithoutCancel(b.Context()), "delete", "validatingadmissionpolicybinding/gleaner-node-own-node", "validatingadmissionpolicy/gleaner-node-own-node")
	})
	var set appsv1.DaemonSet
	if err := b.api.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "gleaner-node"}, &set); err != nil {
		b.Fatal(err)
	}
	server, err := url.Parse(shared.cluster.RESTConfig().Host)
	if err != nil {
		b.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "node", Namespace: namespace}, Spec: set.Spec.Template.Spec}
	pod.Spec.NodeName, pod.Spec.HostNetwork, pod.Spec.DNSPolicy = b.node.Name(), true, corev1.DNSDefault
	c := &pod.Spec.Containers[0]
	c.LivenessProbe, c.Ports = nil, nil
	c.Args = append(c.Args, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	c.Env = append(c.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: server.Hostname()}, corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: server.Port()})
	folder := filepath.Dir(strings.TrimPrefix(b.node.RuntimeEndpoint(), "unix://"))
	for at := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[at]; v.HostPath != nil {
			v.HostPath.Path = map[string]string{"runtime": folder + "/containerd.sock", "image-filesystem": folder + "/root"}[v.Name]
		}
	}
	addToken(&pod.Spec)
	b.Cleanup(func() { b.logIfFailed(filepath.Join(folder, "logs", namespace+"_*", "node", "*.log")) })
	b.waitForServiceAccount()
	if err := b.api.Create(b.Context(), pod); err != nil {
		b.Fatal(err)
	}
	b.expectRunning(namespace, "node")
}

// addToken adds what the admission plugin ServiceAccount adds elsewhere: development control planes don't have it.
func addToken(s *corev1.PodSpec) {
	const name = "token"
	s.Volumes = append(s.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3600)}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
	}}}})
	s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true})
}

// logIfFailed shows what a Pod wrote.
func (b *box) logIfFailed(pattern string) {
	files, _ := filepath.Glob(pattern)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && b.Failed() {
			b.Logf("%s:\n%s", file, text[max(0, len(text)-5000):])
		}
	}
}

// waitForServiceAccount waits for what Pods mount: the certificate of the API server.
func (b *box) waitForServiceAccount() {
	b.Helper()
	b.eventually(func() error {
		return b.api.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{})
	})
}

// runPodOfKubelet runs a Pod with an image that the node has, until the test ends.
func (b *box) runPodOfKubelet(name, image string) {
	b.Helper()
	b.createPodOfKubelet(name, image)
	b.expectRunning(metav1.NamespaceDefault, "kubelet-"+name)
}

func (b *box) createPodOfKubelet(name, image string) {
	b.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kubelet-" + name, Namespace: metav1.NamespaceDefault}, Spec: corev1.PodSpec{
		NodeName: b.node.Name(), AutomountServiceAccountToken: ptr.To(false), DNSPolicy: corev1.DNSDefault, EnableServiceLinks: ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](1), SecurityContext: &corev1.PodSecurityContext{},
		Containers: []corev1.Container{{Name: "c", Image: reference(image), ImagePullPolicy: corev1.PullNever, Args: []string{"0s"}}},
	}}
	if err := b.api.Create(b.Context(), p); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = b.api.Delete(context.WithoutCancel(b.Context()), p, client.GracePeriodSeconds(0)) })
}

func (b *box) expectRunning(namespace, name string) {
	b.Helper()
	b.eventually(func() error {
		var p corev1.Pod
		err := b.api.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &p)
		if err == nil && (p.Status.Phase != corev1.PodRunning || len(p.Status.ContainerStatuses) == 0 || !p.Status.ContainerStatuses[0].Ready) {
			err = fmt.Errorf("Pod %s is %s: %+v", name, p.Status.Phase, p.Status.ContainerStatuses)
		}
		return err
	})
}

// testOwnNode writes with the service account's tokens of other nodes, and of none.
func (b *box) testOwnNode(t *testing.T) {
	var live v1alpha1.NodeRetention
	if err := b.api.Get(t.Context(), client.ObjectKey{Name: "kubelet"}, &live); err != nil {
		t.Fatal(err)
	}
	for on, want := range map[string]string{
		"kubelet": "", "node1": "gleaner-node on node node1 may not write about kubelet", "": "does not name the node of its pod",
	} {
		config := shared.cluster.RESTConfig()
		config.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
		if on != "" {
			config.Impersonate.Extra = map[string][]string{nodeClaim: {on}}
		}
		c, err := client.New(config, client.Options{Scheme: b.api.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		written := live.DeepCopy()
		devtest.Eventually(t, 30*time.Second, func() error {
			if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(written), written); err != nil {
				return err
			}
			written.Status.Reason = "Test"
			switch err := c.Status().Update(t.Context(), written, client.DryRunAll); {
			case want == "":
				return err
			case err == nil || !strings.Contains(err.Error(), want):
				return fmt.Errorf("with a token of %q: %w, want %q", on, err, want)
			default:
				return nil
			}
		})
		if err := c.Create(t.Context(), &v1alpha1.NodeRetention{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}, client.DryRunAll); err == nil {
			t.Errorf("with a token of %q, it may write about any node", on)
		}
		request := &v1alpha1.ImageRemovalRequest{ObjectMeta: metav1.ObjectMeta{Name: "request"}, Spec: v1alpha1.ImageRemovalRequestSpec{
			NodeName: "kubelet", Policy: "p", Limit: "Usage", Image: v1alpha1.NodeImage{ID: "i", FirstSeen: metav1.Now()},
		}}
		if err := c.Create(t.Context(), request, client.DryRunAll); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with a token of %q, a request for an image of node kubelet: %v, want %q", on, err, want)
		}
		if err := c.Delete(t.Context(), written, client.DryRunAll); err == nil {
			t.Errorf("with a token of %q, it may delete", on)
		}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.Secret{}); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("it may read Secrets: %v", err)
		}
	}
}

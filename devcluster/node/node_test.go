//go:build linux

package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/child/childtest"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// leftovers is what a node may leave on the machine.
type leftovers struct{ Folder, Cgroup, Gateway string }

// need is nodetest.Need, which imports this package.
func need(t *testing.T) {
	t.Helper()
	if err := CheckRequirements(); err != nil {
		if os.Getenv(RequiredVariable) == "required" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// startWithPod starts a node with a Pod that would take its time to end.
func startWithPod(t *testing.T) (*Node, leftovers) {
	t.Helper()
	if err := Build(t.Context(), os.Stderr); err != nil { // takes minutes, once
		t.Fatal(err)
	}
	cluster := startCluster(t)
	n, err := Start(t.Context(), cluster, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	kube := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	pods := kube.CoreV1().Pods(metav1.NamespaceDefault)
	made, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{
			NodeName: n.Name(), AutomountServiceAccountToken: ptr.To(false), DNSPolicy: corev1.DNSDefault,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "linger", Image: Linger, ImagePullPolicy: corev1.PullNever, Args: []string{"1m"}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, time.Minute, func() error {
		live, err := pods.Get(t.Context(), made.Name, metav1.GetOptions{})
		if err != nil || live.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the Pod is %v: %w", live.Status, err)
		}
		return nil
	})
	running, err := n.Running(t.Context(), made.UID)
	if err != nil || len(running) != 2 {
		t.Errorf("the containers %v run, want the Pod's and its sandbox; %v", running, err)
	}
	return n, leftovers{n.folder, n.cgroup, n.gateway}
}

func startCluster(t *testing.T) *devcluster.Cluster {
	t.Helper()
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{Controllers: []string{"namespace-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// check says what is left of a node.
func (l leftovers) check() error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), l.Folder) {
		return fmt.Errorf("mounts below %s are left", l.Folder)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range lines {
		line, err := os.ReadFile(file) // of a process that may be gone
		if err == nil && strings.Contains(string(line), l.Folder) {
			return fmt.Errorf("a process is left: %q", line)
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.String() == l.Gateway {
			return fmt.Errorf("a network device of a Pod is left, with address %s", a)
		}
	}
	return nil
}

func TestStop_LeavesNothingOnTheMachine(t *testing.T) {
	need(t)
	n, left := startWithPod(t)
	if left.check() == nil {
		t.Error("nothing is found while the node runs, so this shows nothing")
	}
	if len(cgroups(left.Cgroup)) == 0 {
		t.Error("its containers are in no cgroup of its own, so this shows nothing")
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 10*time.Second, left.check) // the kernel removes network devices a moment later
	if groups := cgroups(left.Cgroup); len(groups) != 0 {
		t.Errorf("cgroups are left: %v", groups)
	}
	if _, err := os.Stat(left.Folder); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
}

func TestStart_EndsWithParent(t *testing.T) {
	need(t)
	left := childtest.KillParent(t, func() leftovers {
		_, left := startWithPod(t)
		return left
	}, func(left leftovers) {
		if left.check() == nil {
			t.Errorf("no node was started: %+v", left)
		}
	})
	devtest.Eventually(t, 10*time.Second, left.check)
	devtest.Eventually(t, 10*time.Second, func() error { // what the next node does
		sweepCgroups()
		if groups := cgroups(left.Cgroup); len(groups) != 0 {
			return fmt.Errorf("cgroups are left: %v", groups)
		}
		return nil
	})
}

func TestStart_SaysWhatTheKubeletThatEndedSaid(t *testing.T) {
	need(t)
	tools, err := findTools()
	if err != nil {
		t.Fatal(err)
	}
	if err := tools.build(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	tools.kubelet = filepath.Join(t.TempDir(), "kubelet")
	if err := os.WriteFile(tools.kubelet, []byte("#!/bin/sh\necho this is why\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cluster := startCluster(t)
	n := &Node{name: "node1", tools: tools}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = n.startProcesses(ctx, cluster)
	if err == nil || !strings.Contains(err.Error(), "node1 ended") || !strings.Contains(err.Error(), "this is why") {
		t.Errorf("got %v", err)
	}
}

func TestMissing_SaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := CheckRequirements()
	if err == nil {
		t.Fatal("nothing is missing")
	}
	for _, want := range []string{"mount, runc, sh", "apt-get install runc containernetworking-plugins"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
}

func TestStart_RejectsHiddenFolder(t *testing.T) {
	n := &Node{name: "node1", folder: "/run/somewhere/node1"}
	_, err := n.configure(nil)
	if err == nil || !strings.Contains(err.Error(), "below /run") || !strings.Contains(err.Error(), "set TMPDIR") {
		t.Errorf("got %v", err)
	}
}

package chart

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

const nodeInterval = 200 * time.Millisecond

// node runs the pods of the namespace as processes, with the arguments of their containers and as their service accounts, since
// there is no kubelet.
type node struct {
	*testing.T
	cluster *devcluster.Cluster
	client  kubernetes.Interface
	ran     map[types.UID]*ranPod
	logs    []string
}

type ranPod struct {
	name    string
	process *program.Process
	probes  string // host and port; empty for a Job
	done    bool   // its status says so
}

// startNode runs pods until the test ends. After it, all processes have ended.
func startNode(t *testing.T, cluster *devcluster.Cluster) {
	n := &node{T: t, cluster: cluster, client: kubernetes.NewForConfigOrDie(cluster.RESTConfig()), ran: map[types.UID]*ranPod{}}
	gleaner.Path(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			n.sync(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(nodeInterval):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		for uid := range n.ran {
			n.end(uid)
		}
		if t.Failed() {
			t.Logf("processes:\n%s", strings.Join(n.logs, "\n"))
		}
	})
}

func (n *node) sync(ctx context.Context) {
	pods, err := n.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		if ctx.Err() == nil {
			n.Errorf("list pods: %v", err)
		}
		return
	}
	present := map[types.UID]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		present[p.UID] = true
		if n.ran[p.UID] == nil {
			n.start(ctx, p)
		}
		n.report(ctx, p)
	}
	for uid := range n.ran {
		if !present[uid] {
			n.end(uid)
		}
	}
}

func (n *node) start(ctx context.Context, p *corev1.Pod) {
	container := p.Spec.Containers[0]
	r := &ranPod{name: p.Name}
	folder := n.TempDir()
	var args []string
	for _, arg := range container.Args {
		args = append(args, strings.ReplaceAll(arg, "=/var/cache/gleaner", "="+folder))
	}
	if args[0] == "run" {
		r.probes = devtest.FreeAddress(n)
		args = append(args, "--metrics-bind-address="+devtest.FreeAddress(n), "--health-probe-bind-address="+r.probes)
	}
	token, err := n.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, p.Spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		n.Errorf("token of %s: %v", p.Spec.ServiceAccountName, err)
		return
	}
	config := &rest.Config{Host: n.cluster.RESTConfig().Host, BearerToken: token.Status.Token}
	config.CAData = n.cluster.RESTConfig().CAData
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := devcluster.WriteKubeconfig(kubeconfig, config); err != nil {
		n.Error(err)
		return
	}
	if args[0] == "run" {
		args = append(args, "--namespace="+namespace)
	}
	cmd := exec.Command(gleaner.Path(n), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if r.process, err = program.Start(cmd); err != nil {
		n.Errorf("start %v: %v", args, err)
		return
	}
	n.ran[p.UID] = r
}

// report updates the status of a pod.
func (n *node) report(ctx context.Context, p *corev1.Pod) {
	r := n.ran[p.UID]
	if r == nil || r.done {
		return
	}
	before := p.Status.DeepCopy()
	switch {
	case r.process.IsRunning():
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		if r.probes != "" && ready(ctx, "http://"+r.probes+"/readyz") {
			p.Status.Conditions[0].Status = corev1.ConditionTrue
		}
	case r.process.Wait(time.Second) == nil && strings.HasPrefix(p.Name, "gleaner-release"):
		p.Status.Phase, p.Status.Conditions, r.done = corev1.PodSucceeded, nil, true
	default:
		p.Status.Phase, p.Status.Conditions, r.done = corev1.PodFailed, nil, true
	}
	same := before.Phase == p.Status.Phase && slices.EqualFunc(before.Conditions, p.Status.Conditions, func(a, b corev1.PodCondition) bool {
		return a.Type == b.Type && a.Status == b.Status
	})
	if same {
		return
	}
	if _, err := n.client.CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
		r.done = false // again next time
	}
}

func ready(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (n *node) end(uid types.UID) {
	r := n.ran[uid]
	delete(n.ran, uid)
	if err := r.process.Stop(timeout); err != nil && r.probes != "" {
		n.Errorf("pod %s: %v", r.name, err)
	}
	n.logs = append(n.logs, "pod "+r.name+":", r.process.Log.Tail(20))
}

package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/devcluster/node"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

const (
	timeout  = time.Minute
	replicas = 2

	// A Pod's container takes lingers to end; its grace period is gracePeriod.
	terminationTime = 3 * time.Second
	gracePeriod     = 25 // seconds, different from the default
)

// runOperator runs Gleaner with its webhooks until the test ends.
func runOperator(t *testing.T, set func(*run.Options)) *env {
	t.Helper()
	config, err := inprocess.OperatorConfig(shared.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := inprocess.CreateCRDs(t, config); err != nil {
		t.Fatal(err)
	}
	options := inprocess.Options(config)
	if options.Webhook, err = inprocess.Endpoint(shared.cluster); err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(&options)
	}
	collector, stop, err := inprocess.RunCollector(options, inprocess.Webhooks(options.Webhook))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return newEnv(t, collector)
}

// env is a test's namespace on a control plane with a node.
type env struct {
	*testing.T
	collector *run.Operator
	kube      kubernetes.Interface
	ns        string
}

func newEnv(t *testing.T, collector *run.Operator) *env {
	t.Helper()
	config := shared.cluster.RESTConfig()
	return &env{T: t, collector: collector, kube: kubernetes.NewForConfigOrDie(config), ns: devtest.Namespace(t, config)}
}

// workload is a Deployment with its dependents.
type workload struct {
	deployment *appsv1.Deployment
	set        *appsv1.ReplicaSet
	pods       []corev1.Pod
}

// createWorkload creates a Deployment and waits until its containers run, and the graph has
// all objects.
func (w *env) createWorkload() workload {
	w.Helper()
	return w.createWorkloadWith(gracePeriod)
}

// createWorkloadWith creates a Deployment whose Pods have a grace period of their own, in seconds.
func (w *env) createWorkloadWith(gracePeriodSeconds int64) workload {
	w.Helper()
	return w.createWorkloadOf(w.deployment("web", gracePeriodSeconds))
}

func (w *env) createWorkloadOf(wanted *appsv1.Deployment) workload {
	w.Helper()
	deployment, err := w.kube.AppsV1().Deployments(w.ns).Create(w.Context(), wanted, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	made := workload{deployment: deployment}
	devtest.Eventually(w, timeout, func() error {
		sets, err := w.kube.AppsV1().ReplicaSets(w.ns).List(w.Context(), metav1.ListOptions{})
		if err != nil || len(sets.Items) != 1 {
			return fmt.Errorf("%d ReplicaSets: %w", len(sets.Items), err)
		}
		made.set = &sets.Items[0]
		pods, err := w.kube.CoreV1().Pods(w.ns).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		made.pods = pods.Items
		return w.checkRunning(made.pods)
	})
	return made
}

// deployment returns a Deployment whose Pods have a grace period of their own, in seconds.
func (w *env) deployment(name string, gracePeriodSeconds int64) *appsv1.Deployment {
	spec := podSpec()
	spec.TerminationGracePeriodSeconds = &gracePeriodSeconds
	selected := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](replicas), Selector: &metav1.LabelSelector{MatchLabels: selected},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selected}, Spec: spec},
		},
	}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		NodeName:                      shared.node.Name(), // without a scheduler
		TerminationGracePeriodSeconds: ptr.To[int64](gracePeriod),
		AutomountServiceAccountToken:  ptr.To(false),
		DNSPolicy:                     corev1.DNSDefault,
		Containers: []corev1.Container{{
			Name: "linger", Image: node.Linger, ImagePullPolicy: corev1.PullNever, Args: []string{terminationTime.String()},
		}},
	}
}

func (w *env) checkRunning(pods []corev1.Pod) error {
	if len(pods) != replicas {
		return fmt.Errorf("got %d Pods, want %d", len(pods), replicas)
	}
	for _, p := range pods {
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("Pod %s is %s: %v", p.Name, p.Status.Phase, p.Status.ContainerStatuses)
		}
		if !w.collector.HasUID(p.UID) {
			return fmt.Errorf("Pod %s is not in the graph", p.Name)
		}
	}
	return nil
}

// delete deletes the Deployment.
func (w *env) delete(deployment *appsv1.Deployment, propagation metav1.DeletionPropagation) {
	w.Helper()
	w.deleteWith(deployment.Name, metav1.DeleteOptions{PropagationPolicy: &propagation})
}

// deleteWith deletes a Deployment with options.
func (w *env) deleteWith(name string, options metav1.DeleteOptions) {
	w.Helper()
	if err := w.kube.AppsV1().Deployments(w.ns).Delete(w.Context(), name, options); err != nil {
		w.Fatal(err)
	}
}

// containersRunning reports whether a container of the Pod has a process according to
// containerd.
func (w *env) containersRunning(pod corev1.Pod) bool {
	w.Helper()
	running, err := shared.node.Running(w.Context(), pod.UID)
	if err != nil {
		w.Fatal(err)
	}
	return len(running) > 0
}

// A deletion is a request to delete a Pod, from the API server's audit log.
type deletion struct {
	User          struct{ Username string }
	ObjectRef     struct{ Namespace, Name string }
	RequestObject metav1.DeleteOptions
}

// deletions returns the requests to delete Pods of this namespace.
func (w *env) deletions() []deletion {
	w.Helper()
	return w.deletionsUntil(replicas)
}

// deletionsUntil returns the requests to delete Pods of this namespace, once the kubelet has deleted a number of Pods. The log has them a
// moment after their responses.
func (w *env) deletionsUntil(pods int) []deletion {
	w.Helper()
	var found []deletion
	devtest.Eventually(w, timeout, func() error {
		text, err := os.ReadFile(auditLog())
		if err != nil {
			return err
		}
		found = nil
		ended := 0
		for line := range bytes.Lines(text) {
			var d deletion
			if err := json.Unmarshal(line, &d); err != nil {
				return err // incomplete line
			}
			if d.ObjectRef.Namespace != w.ns {
				continue
			}
			found = append(found, d)
			if byNode(d) {
				ended++
			}
		}
		if ended < pods {
			return errors.New("log lacks the final deletion of some Pods")
		}
		return nil
	})
	return found
}

// byNode reports whether the kubelet sent the request, as it does after the containers have ended.
func byNode(d deletion) bool { return strings.HasPrefix(d.User.Username, "system:node:") }

package deploy

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestPods_AreAdmittedToARestrictedNamespace(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(sharedInstallation(t).RESTConfig())
	var pods *corev1.PodList
	devtest.Eventually(t, timeout, func() (err error) {
		pods, err = client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=gleaner"})
		if err == nil && len(pods.Items) != 2 {
			err = fmt.Errorf("got %d pods", len(pods.Items))
		}
		return err
	})
	for _, pod := range pods.Items {
		if pod.Spec.ServiceAccountName != "gleaner" || pod.Spec.PriorityClassName != "system-cluster-critical" {
			t.Errorf("%s runs as %s with priority %s", pod.Name, pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName)
		}
	}

	t.Run("which admits no others", func(t *testing.T) {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "loose"}, Spec: *pods.Items[0].Spec.DeepCopy()}
		pod.Spec.Containers[0].SecurityContext = nil
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), &pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "restricted:latest") {
			t.Errorf("got error %v", err)
		}
	})
}

func TestPods_MatchServiceAndDisruptionBudget(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(sharedInstallation(t).RESTConfig())
	devtest.Eventually(t, timeout, func() error {
		budget, err := client.PolicyV1().PodDisruptionBudgets(namespace).Get(t.Context(), "gleaner", metav1.GetOptions{})
		if err == nil && budget.Status.ExpectedPods != 2 {
			err = fmt.Errorf("disruption budget expects %d pods", budget.Status.ExpectedPods)
		}
		return err
	})
	service, err := client.CoreV1().Services(namespace).Get(t.Context(), "gleaner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(
		&metav1.LabelSelector{MatchLabels: service.Spec.Selector})})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 2 {
		t.Errorf("service selects %d pods", len(pods.Items))
	}
	ports := map[string]int32{}
	for _, p := range container(t, client).Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range service.Spec.Ports {
		if ports[p.TargetPort.StrVal] != p.Port {
			t.Errorf("service port %d targets %s; container ports are %v", p.Port, p.TargetPort.StrVal, ports)
		}
	}
}

// container returns the Deployment's container.
func container(t *testing.T, client kubernetes.Interface) corev1.Container {
	t.Helper()
	deployment, err := client.AppsV1().Deployments(namespace).Get(t.Context(), "gleaner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return deployment.Spec.Template.Spec.Containers[0]
}

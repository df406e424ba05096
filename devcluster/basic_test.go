package devcluster_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestBasicControllers_RunDeploymentsAndRemoveNamespaces(t *testing.T) {
	cluster := devtest.Start(t, devcluster.Options{BasicControllers: true})
	client := clientFor(t, cluster.RESTConfig())
	namespace := devtest.Namespace(t, cluster.RESTConfig())
	if _, err := cluster.Kubectl(t.Context(), "create", "deployment", "web", "--image=web", "--replicas=2", "-n", namespace); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, testTimeout, func() error {
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items) != 2 {
			err = fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
	if err := client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, testTimeout, func() error {
		list, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + namespace})
		if err == nil && len(list.Items) != 0 {
			err = fmt.Errorf("namespace %s is still there", namespace)
		}
		return err
	})
}

func TestBasicControllers_CanNotBeSwitchedOff(t *testing.T) {
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{BasicControllers: true, Controllers: []string{"*"}})
	if err == nil {
		stopOnCleanup(t, cluster)
	}
	if err == nil || !strings.Contains(err.Error(), "leave Controllers nil") {
		t.Errorf("got %v", err)
	}
}

package devcluster_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const collector = "garbage-collector-controller"

// One cluster for all of it: each step starts where the one before ended.
func TestOnlyTheChosenControllersRun(t *testing.T) {
	opts := devcluster.Options{Controllers: []string{"*", "-" + collector}}
	cluster, err := devcluster.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	stopOnCleanup(t, cluster)
	client := clientFor(t, cluster.RESTConfig()).CoreV1()
	namespace := devtest.Namespace(t, cluster.RESTConfig())

	// The other controllers are at work.
	devtest.Eventually(t, testTimeout, func() error {
		_, err := client.ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	orphan(t, client.ConfigMaps(namespace))
	deadline := time.Now().Add(time.Second) // a collector needs a tenth of it
	devtest.Eventually(t, testTimeout, func() error {
		if dependentIsGone(t, client.ConfigMaps(namespace)) == nil {
			t.Fatal("the dependent went without a collector")
		}
		if time.Now().Before(deadline) {
			return errors.New("the second is not over")
		}
		return nil
	})

	if err := cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	if _, runs := cluster.PIDs()[devcluster.ControllerManager]; runs {
		t.Error("controller manager runs after its stop")
	}
	if err := cluster.StartControllerManager(t.Context(), collector); err != nil {
		t.Fatal(err)
	}
	// Well below the 15 seconds that the first one's lease would have lasted.
	devtest.Eventually(t, 12*time.Second, func() error {
		return dependentIsGone(t, client.ConfigMaps(namespace))
	})
}

// orphan leaves a dependent whose owner was deleted in the background.
func orphan(t *testing.T, configMaps corev1client.ConfigMapInterface) {
	t.Helper()
	owner, err := configMaps.Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
	if _, err := configMaps.Create(t.Context(), configMap("dependent", reference), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	background := metav1.DeletePropagationBackground
	if err := configMaps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
}

func dependentIsGone(t *testing.T, configMaps corev1client.ConfigMapInterface) error {
	t.Helper()
	_, err := configMaps.Get(t.Context(), "dependent", metav1.GetOptions{})
	switch {
	case err == nil:
		return errors.New("the dependent is still there")
	case apierrors.IsNotFound(err):
		return nil
	default:
		return fmt.Errorf("get dependent: %w", err)
	}
}

func TestDataOutlivesTheAPIServer(t *testing.T) {
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{NoControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}
	stopOnCleanup(t, cluster)
	namespace := devtest.Namespace(t, cluster.RESTConfig())
	configMaps := clientFor(t, cluster.RESTConfig()).CoreV1().ConfigMaps(namespace)
	made, err := configMaps.Create(t.Context(), configMap("kept"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func() error{"stopped": cluster.StopAPIServer, "killed": cluster.KillAPIServer} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if _, err := configMaps.Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
			t.Fatalf("%s API server answers", name)
		}
		if err := cluster.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept, err := configMaps.Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if kept.UID != made.UID {
			t.Errorf("%s API server came back with another object", name)
		}
	}
}

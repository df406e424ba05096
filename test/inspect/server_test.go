package inspect

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/internal/cli/doctor"
)

// Without it, a foreground deletion leaves no trace that a collector
// could act on, and nothing reports that.
func TestDoctor_FindsGarbageCollectionDisabledInTheAPIServer(t *testing.T) {
	s := sharedTestbed(t)
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{
		NoControllerManager: true, APIServerFlags: []string{"--enable-garbage-collector=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	kube := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}} // as created by kube-controller-manager
	if _, err := kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), ca, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), s.binary, "doctor", "-o", "json", "--kubeconfig="+cluster.Kubeconfig())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d (%v)", code, err)
	}
	var report struct {
		Kind     string
		Findings []doctor.Finding
	}
	if err := json.Unmarshal(out, &report); err != nil || report.Kind != "DoctorReport" {
		t.Fatalf("%v: %s", err, out)
	}
	found := map[string]doctor.Severity{}
	for _, f := range report.Findings {
		found[f.Check] = max(found[f.Check], f.Severity)
	}
	if found["garbage collection"] != doctor.Problem || found["operator"] != doctor.Problem || found["custom resource definitions"] != doctor.Warning {
		t.Errorf("findings are %v", found)
	}
	if _, err := kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), ca.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("doctor deleted an object: %v", err)
	}
}

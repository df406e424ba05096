package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/test/objects"
)

const (
	service = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
`
	secret = "{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {password: open sesame}}"
)

func TestRestore_DeploymentWithWhatBelongsToIt(t *testing.T) {
	e := newEnv(t)
	web := e.Create(objects.Deployment)
	own := []*unstructured.Unstructured{web, e.ConfigMap("settings", web), e.Create(secret, web), e.Create(objects.Claim, web)}
	pods := e.WaitForPods(2)
	sets := e.List("apps/v1", "ReplicaSet")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	recipients := []age.Recipient{key.Recipient()}
	archived := e.storeFor(recipients, archive.Cause{}, own...)
	e.storeFor(recipients, archive.Cause{}, append(sets, pods...)...)
	e.Remove([]*unstructured.Unstructured{web}, append(append(own, sets...), pods...)...)
	if out, code := e.run("deploy/web", "-n", e.Namespace, "--yes"); code != 3 || !strings.Contains(out, "--identity") {
		t.Errorf("without the identity: exit code %d\n%s", code, out)
	}
	file := filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(file, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := e.restore("deploy/web", "-n", e.Namespace, "--identity", file)
	if !strings.Contains(out, "is left to Deployment web, which creates it") || !strings.Contains(out, "Restored 4 objects") {
		t.Errorf("got\n%s", out)
	}
	e.Compare(archived)
	e.WaitForPods(2)
	if again := e.restore("deploy/web", "-n", e.Namespace, "--identity", file); !strings.Contains(again, "Restored 0 objects; 4 restored before; 3 left alone.") {
		t.Errorf("again:\n%s", again)
	}
}

func TestRestore_ReplicaSetsAndPodsWithAll(t *testing.T) {
	e := newEnv(t)
	web := e.Create(objects.Deployment)
	pods := e.WaitForPods(2)
	all := append([]*unstructured.Unstructured{web}, append(e.List("apps/v1", "ReplicaSet"), pods...)...)
	archived := e.store(archive.Cause{}, all...)
	e.Remove(archived[:1], all...)
	e.restore("deploy/web", "-n", e.Namespace, "--all")
	// Whatever its controllers create meanwhile, the second run finds nothing to do, once the Pods that were too many are gone.
	devtest.Eventually(t, timeout, func() error {
		if out, code := e.run("deploy/web", "-n", e.Namespace, "--all", "--yes"); code != 0 {
			return fmt.Errorf("restore again: exit code %d\n%s", code, out)
		}
		return nil
	})
	e.Compare(archived[:1])
	e.WaitForPods(2)
}

func TestRestore_ServicesGetNewAddresses(t *testing.T) {
	e := newEnv(t)
	archived := e.store(archive.Cause{}, e.Create(service))
	e.Remove(archived)
	out := e.restore("svc/web", "-n", e.Namespace)
	if !strings.Contains(out, "gets new addresses; it had the cluster IP") {
		t.Errorf("got\n%s", out)
	}
	e.Compare(archived, "spec.clusterIP", "spec.clusterIPs", "spec.ports")
	e.Remove([]*unstructured.Unstructured{e.Read(archived[0])})
	e.restore("svc/web", "-n", e.Namespace, "--keep-addresses")
	e.Compare(archived)
}

func TestRestore_ClaimsGetTheirVolumeBack(t *testing.T) {
	e := newEnv(t)
	volume := e.Create(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec: {accessModes: [ReadWriteOnce], storageClassName: manual, capacity: {storage: 1Gi}, persistentVolumeReclaimPolicy: Retain, hostPath: {path: /nowhere}}
`, e.Namespace))
	t.Cleanup(func() {
		if err := e.Of(volume).Delete(e.cleanup(), volume.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Logf("delete the volume: %v", err)
		}
	})
	pvc := e.Create(strings.Replace(objects.Claim, "spec: {", "spec: {volumeName: "+e.Namespace+", ", 1))
	e.eventuallyBound(pvc)
	archived := e.store(archive.Cause{}, pvc)
	e.Remove(archived)
	e.restore("pvc/data", "-n", e.Namespace)
	e.eventuallyBound(pvc)
	e.Compare(archived, "metadata.annotations")
	uid, _, _ := unstructured.NestedString(e.Read(volume).Object, "spec", "claimRef", "uid")
	if uid != string(e.Read(pvc).GetUID()) {
		t.Errorf("the volume refers to %s", uid)
	}
}

func (e *env) eventuallyBound(pvc *unstructured.Unstructured) {
	e.Helper()
	devtest.Eventually(e, timeout, func() error {
		if phase, _, _ := unstructured.NestedString(e.Read(pvc).Object, "status", "phase"); phase != "Bound" {
			return errors.New("the claim is " + phase)
		}
		return nil
	})
}

func TestRestore_WholeNamespace(t *testing.T) {
	e := newEnv(t)
	ns := e.Create(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s-whole, labels: {team: shop}}}", e.Namespace))
	e.Namespace = ns.GetName()
	before := e.ConfigMap("deleted-before")
	e.store(archive.Cause{}, before)
	e.Remove([]*unstructured.Unstructured{before})
	owner := e.ConfigMap("owner")
	own := []*unstructured.Unstructured{
		ns, owner, e.ConfigMap("dependent", owner), e.Create(objects.Deployment), e.Create(service),
		e.Create("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}"),
		e.Create("{apiVersion: v1, kind: Pod, metadata: {name: bare}, spec: {containers: [{name: a, image: a}]}}"),
	}
	pods := e.WaitForPods(3)
	archived := e.store(archive.Cause{}, own...)
	e.store(archive.Cause{}, append(pods, e.List("v1", "Endpoints")...)...)
	e.store(archive.Cause{}, append(e.List("apps/v1", "ReplicaSet"), e.List("discovery.k8s.io/v1", "EndpointSlice")...)...)
	devtest.Eventually(t, timeout, func() error {
		if len(e.List("v1", "ConfigMap")) < 3 || len(e.List("v1", "ServiceAccount")) < 2 {
			return errors.New("what is created in each namespace is not there yet")
		}
		return nil
	})
	for _, o := range append(e.List("v1", "ConfigMap"), e.List("v1", "ServiceAccount")...) {
		if o.GetName() == "kube-root-ca.crt" || o.GetName() == "default" {
			e.store(archive.Cause{}, o)
		}
	}
	e.Remove(archived[:1], archived...)
	if out, code := e.run("configmap/owner", "-n", e.Namespace, "--dry-run=client"); code != 3 || !strings.Contains(out, "does not exist, and is not restored: create it first") {
		t.Errorf("without its namespace: exit code %d\n%s", code, out)
	}
	out := e.restore("ns/" + e.Namespace)
	e.Compare(archived, "spec.clusterIP", "spec.clusterIPs", "spec.ports", "spec.volumes", "spec.containers")
	if e.Read(before) != nil {
		t.Errorf("what was deleted before the namespace was restored:\n%s", out)
	}
	e.WaitForPods(3)
	if again := e.restore("ns/" + e.Namespace); !strings.Contains(again, "Restored 0 objects; 7 restored before") {
		t.Errorf("again:\n%s", again)
	}
	e.Remove([]*unstructured.Unstructured{e.Read(ns)})
}

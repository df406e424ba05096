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
)

const (
	deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
`
	service = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
`
	claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: manual, resources: {requests: {storage: 1Gi}}}
`
	secret = "{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {password: open sesame}}"
)

// eventuallyPods waits until there are n Pods that are not being deleted.
func (e *env) eventuallyPods(n int) (pods []*unstructured.Unstructured) {
	e.Helper()
	devtest.Eventually(e, timeout, func() error {
		pods = nil
		for _, p := range e.list("v1", "Pod") {
			if p.GetDeletionTimestamp() == nil {
				pods = append(pods, p)
			}
		}
		if len(pods) != n {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	return pods
}

func TestRestore_DeploymentWithWhatBelongsToIt(t *testing.T) {
	e := newEnv(t)
	web := e.create(deployment)
	own := []*unstructured.Unstructured{web, e.configMap("settings", web), e.create(secret, web), e.create(claim, web)}
	pods := e.eventuallyPods(2)
	sets := e.list("apps/v1", "ReplicaSet")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	recipients := []age.Recipient{key.Recipient()}
	archived := e.storeFor(recipients, archive.Cause{}, own...)
	e.storeFor(recipients, archive.Cause{}, append(sets, pods...)...)
	e.remove([]*unstructured.Unstructured{web}, append(append(own, sets...), pods...)...)
	if out, code := e.run("deploy/web", "-n", e.namespace, "--yes"); code != 3 || !strings.Contains(out, "--identity") {
		t.Errorf("without the identity: exit code %d\n%s", code, out)
	}
	file := filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(file, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := e.restore("deploy/web", "-n", e.namespace, "--identity", file)
	if !strings.Contains(out, "is left to Deployment web, which creates it") || !strings.Contains(out, "Restored 4 objects") {
		t.Errorf("got\n%s", out)
	}
	e.compare(archived)
	e.eventuallyPods(2)
	if again := e.restore("deploy/web", "-n", e.namespace, "--identity", file); !strings.Contains(again, "Restored 0 objects; 4 restored before; 3 left alone.") {
		t.Errorf("again:\n%s", again)
	}
}

func TestRestore_ReplicaSetsAndPodsWithAll(t *testing.T) {
	e := newEnv(t)
	web := e.create(deployment)
	pods := e.eventuallyPods(2)
	all := append([]*unstructured.Unstructured{web}, append(e.list("apps/v1", "ReplicaSet"), pods...)...)
	archived := e.store(archive.Cause{}, all...)
	e.remove(archived[:1], all...)
	for range 2 { // whatever its controllers create meanwhile, the second run finds nothing to do
		e.restore("deploy/web", "-n", e.namespace, "--all")
	}
	e.compare(archived[:1])
	e.eventuallyPods(2)
}

func TestRestore_ServicesGetNewAddresses(t *testing.T) {
	e := newEnv(t)
	archived := e.store(archive.Cause{}, e.create(service))
	e.remove(archived)
	out := e.restore("svc/web", "-n", e.namespace)
	if !strings.Contains(out, "gets new addresses; it had the cluster IP") {
		t.Errorf("got\n%s", out)
	}
	e.compare(archived, "spec.clusterIP", "spec.clusterIPs", "spec.ports")
	e.remove([]*unstructured.Unstructured{e.read(archived[0])})
	e.restore("svc/web", "-n", e.namespace, "--keep-addresses")
	e.compare(archived)
}

func TestRestore_ClaimsGetTheirVolumeBack(t *testing.T) {
	e := newEnv(t)
	volume := e.create(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec: {accessModes: [ReadWriteOnce], storageClassName: manual, capacity: {storage: 1Gi}, persistentVolumeReclaimPolicy: Retain, hostPath: {path: /nowhere}}
`, e.namespace))
	t.Cleanup(func() {
		if err := e.of(volume).Delete(e.cleanup(), volume.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Logf("delete the volume: %v", err)
		}
	})
	pvc := e.create(strings.Replace(claim, "spec: {", "spec: {volumeName: "+e.namespace+", ", 1))
	e.eventuallyBound(pvc)
	archived := e.store(archive.Cause{}, pvc)
	e.remove(archived)
	e.restore("pvc/data", "-n", e.namespace)
	e.eventuallyBound(pvc)
	e.compare(archived, "metadata.annotations")
	uid, _, _ := unstructured.NestedString(e.read(volume).Object, "spec", "claimRef", "uid")
	if uid != string(e.read(pvc).GetUID()) {
		t.Errorf("the volume refers to %s", uid)
	}
}

func (e *env) eventuallyBound(pvc *unstructured.Unstructured) {
	e.Helper()
	devtest.Eventually(e, timeout, func() error {
		if phase, _, _ := unstructured.NestedString(e.read(pvc).Object, "status", "phase"); phase != "Bound" {
			return errors.New("the claim is " + phase)
		}
		return nil
	})
}

func TestRestore_WholeNamespace(t *testing.T) {
	e := newEnv(t)
	ns := e.create(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s-whole, labels: {team: shop}}}", e.namespace))
	e.namespace = ns.GetName()
	before := e.configMap("deleted-before")
	e.store(archive.Cause{}, before)
	e.remove([]*unstructured.Unstructured{before})
	owner := e.configMap("owner")
	own := []*unstructured.Unstructured{
		ns, owner, e.configMap("dependent", owner), e.create(deployment), e.create(service),
		e.create("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}"),
		e.create("{apiVersion: v1, kind: Pod, metadata: {name: bare}, spec: {containers: [{name: a, image: a}]}}"),
	}
	pods := e.eventuallyPods(3)
	archived := e.store(archive.Cause{}, own...)
	e.store(archive.Cause{}, append(pods, e.list("v1", "Endpoints")...)...)
	e.store(archive.Cause{}, append(e.list("apps/v1", "ReplicaSet"), e.list("discovery.k8s.io/v1", "EndpointSlice")...)...)
	devtest.Eventually(t, timeout, func() error {
		if len(e.list("v1", "ConfigMap")) < 3 || len(e.list("v1", "ServiceAccount")) < 2 {
			return errors.New("what is created in each namespace is not there yet")
		}
		return nil
	})
	for _, o := range append(e.list("v1", "ConfigMap"), e.list("v1", "ServiceAccount")...) {
		if o.GetName() == "kube-root-ca.crt" || o.GetName() == "default" {
			e.store(archive.Cause{}, o)
		}
	}
	e.remove(archived[:1], archived...)
	if out, code := e.run("configmap/owner", "-n", e.namespace, "--dry-run=client"); code != 3 || !strings.Contains(out, "does not exist, and is not restored: create it first") {
		t.Errorf("without its namespace: exit code %d\n%s", code, out)
	}
	out := e.restore("ns/" + e.namespace)
	e.compare(archived, "spec.clusterIP", "spec.clusterIPs", "spec.ports", "spec.volumes", "spec.containers")
	if e.read(before) != nil {
		t.Errorf("what was deleted before the namespace was restored:\n%s", out)
	}
	e.eventuallyPods(3)
	if again := e.restore("ns/" + e.namespace); !strings.Contains(again, "Restored 0 objects; 7 restored before") {
		t.Errorf("again:\n%s", again)
	}
	e.remove([]*unstructured.Unstructured{e.read(ns)})
}

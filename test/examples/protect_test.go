package examples

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// protection is what a policy of the library protects.
type protection struct {
	name   string // of the policy
	before string // manifest
	object string // that can't be deleted, in kubectl's words
	denied string // part of the message
	free   string // what has to be deleted first, in kubectl's words
}

// What kubectl delete prints for objects that the policies of the library protect, and that they can be deleted afterwards.
func TestLibrary_ProtectsWithKubectl(t *testing.T) {
	pod := func(volume string) string {
		return `{apiVersion: v1, kind: Namespace, metadata: {name: protected}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: protected}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: protected}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: data, namespace: protected}}
---
{apiVersion: v1, kind: Secret, metadata: {name: data, namespace: protected}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: protected}
spec: {serviceAccountName: web, terminationGracePeriodSeconds: 0, containers: [{name: web, image: web}], volumes: [` + volume + `]}
`
	}
	const class = `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: protected}, provisioner: example.com/none}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: protected}
spec: {storageClassName: protected, accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /none}}
`
	const widget = `apiVersion: example.com/v1
kind: Widget
metadata: {name: web, namespace: default}
`
	for _, p := range []protection{
		{"in-use", pod("{name: data, persistentVolumeClaim: {claimName: data}}"), "pvc/data -n protected", "ClusterGCPolicy in-use denies this deletion: Pod web uses it", "pod/web -n protected"},
		{"in-use", pod("{name: data, configMap: {name: data}}"), "configmap/data -n protected", "Pod web uses it", "pod/web -n protected"},
		{"in-use", pod("{name: data, secret: {secretName: data}}"), "secret/data -n protected", "Pod web uses it", "pod/web -n protected"},
		{"in-use", class, "storageclass/protected", "PersistentVolume protected uses it", "pv/protected"},
		{"crd-with-objects", crd("example.com", "v1", "Widget", "widgets"), "crd/widgets.example.com", "kubectl get widgets.example.com -A lists them", "widgets/web -n default"},
		{"namespace-with-protected-content", pod("{name: data, emptyDir: {}}"), "namespace/protected", "it contains PersistentVolumeClaim data", "pvc/data -n protected"},
	} {
		t.Run(p.name+" "+p.object, func(t *testing.T) {
			w := &env{T: t, cluster: sharedCluster(t), dir: t.TempDir()}
			folder := filepath.Join("..", "..", "policies", "library", "enforce", p.name)
			w.kubectl("apply", "-k", folder)
			defer w.kubectl("delete", "-k", folder)
			w.waitForCondition(p.name, "True/")
			w.write("before.yaml", []byte(p.before))
			w.kubectl("apply", "-f", filepath.Join(w.dir, "before.yaml"))
			if p.name == "crd-with-objects" {
				w.write("widget.yaml", []byte(widget))
				w.eventually(func() error {
					_, err := w.cluster.Kubectl(w.Context(), "apply", "-f", filepath.Join(w.dir, "widget.yaml"))
					return err
				})
			}
			w.waitForAnswer(p.object, p.denied)
			if _, err := w.cluster.Kubectl(w.Context(), deletionOf(p.object)...); err == nil {
				t.Fatal("it was deleted")
			}
			w.kubectl(deletionOf(p.free)...)
			w.waitForAnswer(p.object, "")
			w.kubectl(deletionOf(p.object)...)
		})
	}
	w := &env{T: t, cluster: sharedCluster(t)}
	w.kubectl("delete", "namespace", "protected", "--ignore-not-found")
}

// deletionOf returns the arguments of kubectl.
func deletionOf(object string) []string { return append([]string{"delete"}, strings.Fields(object)...) }

// waitForAnswer waits until a dry run of a deletion is denied with a message, or allowed if it is "".
func (w *env) waitForAnswer(object, denied string) {
	w.Helper()
	w.eventually(func() error {
		_, err := w.cluster.Kubectl(w.Context(), append(deletionOf(object), "--dry-run=server")...)
		if denied == "" {
			return err
		}
		if err == nil || !strings.Contains(err.Error(), denied) || !strings.Contains(err.Error(), "Forbidden") {
			return fmt.Errorf("deletion of %s: %w", object, err)
		}
		return nil
	})
}

// as returns the arguments of kubectl for another user, who may do everything.
func as(user string, arguments ...string) []string {
	return append(arguments, "--as="+user, "--as-group=system:masters")
}

// refused runs kubectl, and requires an error with a text.
func (w *env) refused(text string, arguments ...string) {
	w.Helper()
	if _, err := w.cluster.Kubectl(w.Context(), arguments...); err == nil || !strings.Contains(err.Error(), text) {
		w.Errorf("kubectl %s: %v, want %q", strings.Join(arguments, " "), err, text)
	}
}

// protectedClaim applies a policy of the library in Enforce mode, and creates a claim that it protects.
func protectedClaim(t *testing.T, policy string) *env {
	t.Helper()
	w := &env{T: t, cluster: sharedCluster(t), dir: t.TempDir()}
	folder := filepath.Join("..", "..", "policies", "library", "enforce", policy)
	w.kubectl("apply", "-k", folder)
	t.Cleanup(func() { _, _ = w.cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "-k", folder) })
	w.waitForCondition(policy, "True/")
	w.write("claim.yaml", []byte(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: precious, namespace: default, finalizers: []},
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`))
	w.kubectl("apply", "-f", filepath.Join(w.dir, "claim.yaml"))
	return w
}

func TestLibrary_ApprovalNeedsAnotherUser(t *testing.T) {
	w := protectedClaim(t, "approval")
	w.waitForAnswer("pvc/precious", "its deletion is not approved")
	uid := w.kubectl("get", "pvc", "precious", "-o", "jsonpath={.metadata.uid}")
	approve := func(approver string) []string {
		return []string{
			"annotate", "--overwrite", "pvc", "precious", "approval.gleaner.dev/uid=" + uid, "approval.gleaner.dev/approver=" + approver,
			"approval.gleaner.dev/until=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		}
	}
	w.eventually(func() error { // API servers read admission policies with a delay
		_, err := w.cluster.Kubectl(w.Context(), append(as("bob", approve("alice")...), "--dry-run=server")...)
		if err == nil || !strings.Contains(err.Error(), "an approval is in your own name: set approval.gleaner.dev/approver to bob") {
			return fmt.Errorf("bob approves as alice: %w", err)
		}
		return nil
	})
	// A user who may write the object, and not approve.
	w.kubectl("create", "rolebinding", "writer", "--clusterrole=edit", "--user=writer")
	defer w.kubectl("delete", "rolebinding", "writer")
	w.eventually(func() error {
		_, err := w.cluster.Kubectl(w.Context(), append(approve("writer"), "--as=writer", "--dry-run=server")...)
		if err == nil || !strings.Contains(err.Error(), "you need the permission to approve the object") {
			return fmt.Errorf("writer approves: %w", err)
		}
		return nil
	})
	w.kubectl(as("alice", approve("alice")...)...)
	w.refused("you have approved its deletion yourself", as("alice", "delete", "pvc", "precious")...)
	w.refused("an approval is in your own name", as("bob", "annotate", "--overwrite", "pvc", "precious", "approval.gleaner.dev/until=2099-01-01T00:00:00Z")...)
	w.kubectl(as("bob", "delete", "pvc", "precious")...)
}

func TestLibrary_LienBelongsToItsOwner(t *testing.T) {
	w := protectedClaim(t, "lien")
	w.eventually(func() error {
		_, err := w.cluster.Kubectl(w.Context(), as("bob", "annotate", "pvc", "precious", "lien.gleaner.dev/owner=alice", "--dry-run=server")...)
		if err == nil || !strings.Contains(err.Error(), "a lien is in your own name: set lien.gleaner.dev/owner to bob") {
			return fmt.Errorf("bob writes the lien of alice: %w", err)
		}
		return nil
	})
	w.kubectl(as("alice", "annotate", "pvc", "precious", "lien.gleaner.dev/owner=alice", "lien.gleaner.dev/reason=audit")...)
	w.waitForAnswer("pvc/precious", "alice has a lien on it (audit): ask them to remove the annotation lien.gleaner.dev/owner")
	w.refused("alice has a lien on it", as("bob", "delete", "pvc", "precious")...)
	w.refused("the lien belongs to alice, who has to change or remove it", as("bob", "annotate", "pvc", "precious", "lien.gleaner.dev/owner-")...)
	w.refused("the lien belongs to alice", as("bob", "annotate", "--overwrite", "pvc", "precious", "lien.gleaner.dev/until=2020-01-01T00:00:00Z")...)
	w.kubectl(as("bob", "label", "pvc", "precious", "unrelated=change")...)
	w.kubectl(as("alice", "annotate", "pvc", "precious", "lien.gleaner.dev/owner-", "lien.gleaner.dev/reason-")...)
	w.kubectl(as("bob", "delete", "pvc", "precious")...)
}

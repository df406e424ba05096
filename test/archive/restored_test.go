package archive

import (
	"fmt"
	"strings"
	"testing"

	"filippo.io/age"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/objects"
)

const (
	everything = `resources: [
  {apiGroups: [""], resources: [configmaps, secrets, persistentvolumeclaims, pods]}, {apiGroups: [apps], resources: [deployments, replicasets, statefulsets]},
  {apiGroups: [batch], resources: [jobs]}, {apiGroups: [restore.example.com], resources: [roots, middles, leafs]}]`

	statefulSet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: db}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: manual, resources: {requests: {storage: 1Gi}}}
`
	job = `
apiVersion: batch/v1
kind: Job
metadata: {name: report}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}
`
	password = "open sesame, if you please"
	secret   = "{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {password: '" + password + "'}}"
)

// shop is a namespace with a Deployment, a StatefulSet, a Job and a tree of custom resources.
type shop struct {
	*env
	web, tree []*unstructured.Unstructured // the root first
	db, job   *unstructured.Unstructured
	claim     *unstructured.Unstructured // of the StatefulSet
}

func newShop(e *env) *shop {
	e.Helper()
	s := &shop{env: e}
	web := e.Create(objects.Deployment)
	s.web = []*unstructured.Unstructured{web, e.ConfigMap("web", web), e.Create(secret, web), e.Create(objects.Claim, web)}
	s.db, s.job, s.tree = e.Create(statefulSet), e.Create(job), e.Tree()
	return s
}

// settle waits until the controllers have done their work, and reads the objects again.
func (s *shop) settle() {
	s.Helper()
	s.WaitForPods(4)
	s.claim = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim"}}
	s.claim.SetName("data-db-0")
	s.claim.SetNamespace(s.Namespace)
	for _, list := range [][]*unstructured.Unstructured{s.web, s.tree, {s.db, s.job, s.claim}} {
		for _, o := range list {
			o.Object = s.Read(o).Object
		}
	}
}

func (s *shop) roots() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{s.web[0], s.db, s.job, s.tree[0]}
}

// below are the objects that the roots own.
func (s *shop) below() []*unstructured.Unstructured {
	return append(s.web[1:len(s.web):len(s.web)], s.tree[1:]...)
}

// ofJobs are the fields of a Job that have its UID.
var ofJobs = []string{"spec.selector", "spec.template.metadata.labels", "metadata.labels"}

// expectBack restores the roots, and compares what was deleted with what exists then.
func (s *shop) expectBack(g *operator, deleted []*unstructured.Unstructured, identity string) {
	s.Helper()
	for _, root := range s.roots() {
		g.restore(s.testbed, root.GetKind()+"/"+root.GetName(), "-n", s.Namespace, "--identity", identity)
	}
	current := s.UIDs(deleted)
	for _, o := range deleted {
		var without []string
		if o.GetKind() == "Job" {
			without = ofJobs
		}
		live := s.Read(o)
		if live == nil || live.GetUID() == o.GetUID() {
			s.Errorf("%s %s was not deleted and restored: %v", o.GetKind(), o.GetName(), live)
			continue
		}
		if diff := objects.Diff(o, live, current, without...); diff != "" {
			s.Errorf("%s %s (-deleted +restored):\n%s", o.GetKind(), o.GetName(), diff)
		}
	}
}

// newIdentity returns a recipient, and the file of its identity.
func newIdentity(t *testing.T) (recipient, file string, identity age.Identity) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return key.Recipient().String(), writeFile(t, key.String()+"\n"), key
}

// Each way to delete the same objects, in both modes: what was deleted is restored with all its fields and
// with owner references to the new objects.
func TestRestore_WhateverWayItWasDeleted(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *testbed) {
		location := "file://" + t.TempDir()
		g := b.operate(t, location)
		recipient, identity, key := newIdentity(t)
		ways := map[metav1.DeletionPropagation]*shop{}
		for _, way := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan, ofNamespace} {
			e := newEnv(t, b)
			e.DefineTypes("Root", "Middle", "Leaf")
			e.policy("all", everything+", recipients: ["+recipient+"]")
			ways[way] = newShop(e)
		}
		ways[metav1.DeletePropagationBackground].WaitUntilCollected("Root", "Middle", "Leaf")
		for way, s := range ways {
			s.settle()
			s.deleteBy(way)
		}
		for way, s := range ways {
			t.Run(strings.ToLower(string(way)), func(t *testing.T) { s.on(t).expectRestored(g, way, identity) })
		}
		expectNoSecret(t, b, g, location, ways[metav1.DeletePropagationBackground].Namespace)
		g.end()
		for way, s := range ways {
			if got := s.archived(location, key); len(got) == 0 {
				t.Errorf("%s: nothing is in the archive", way)
			}
		}
	})
}

// ofNamespace deletes the namespace.
const ofNamespace metav1.DeletionPropagation = "Namespace"

// on returns the shop for a subtest.
func (s *shop) on(t *testing.T) *shop {
	other, e, of := *s, *s.env, *s.Env
	of.T, e.Env, other.env = t, &of, &e
	return &other
}

func (s *shop) namespace() *unstructured.Unstructured {
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName(s.Namespace)
	return ns
}

func (s *shop) deleteBy(way metav1.DeletionPropagation) {
	s.Helper()
	if way == ofNamespace {
		s.Delete(s.namespace(), metav1.DeletePropagationBackground)
		return
	}
	for _, root := range s.roots() {
		s.Delete(root, way)
	}
}

func (s *shop) expectRestored(g *operator, way metav1.DeletionPropagation, identity string) {
	s.Helper()
	deleted := s.roots()
	switch way {
	case metav1.DeletePropagationOrphan:
		s.WaitForDeletion(deleted...)
		s.expectOrphaned()
	case ofNamespace:
		deleted = append(append(deleted, s.below()...), s.claim)
		devtest.Eventually(s, timeout, func() error {
			if s.Read(s.namespace()) != nil {
				return fmt.Errorf("the namespace still exists")
			}
			return nil
		})
		s.Create("{apiVersion: v1, kind: Namespace, metadata: {name: " + s.Namespace + "}}")
	default:
		deleted = append(deleted, s.below()...)
		s.WaitForDeletion(deleted...)
	}
	s.expectBack(g, deleted, identity)
	if way == metav1.DeletePropagationOrphan {
		s.WaitForPods(5) // the Pod of the former Job is nobody's
		return
	}
	s.WaitForPods(4)
}

// expectOrphaned checks that the dependents are the same objects, without owners that are gone.
func (s *shop) expectOrphaned() {
	s.Helper()
	gone := map[string]bool{}
	for _, root := range s.roots() {
		gone[string(root.GetUID())] = true
	}
	for _, o := range s.below() {
		live := s.Read(o)
		if live == nil || live.GetUID() != o.GetUID() {
			s.Errorf("%s %s was deleted", o.GetKind(), o.GetName())
			continue
		}
		for _, ref := range live.GetOwnerReferences() {
			if gone[string(ref.UID)] {
				s.Errorf("%s %s still has its owner %s", o.GetKind(), o.GetName(), ref.Name)
			}
		}
	}
}

package objects

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Group is the API group of custom resources.
const Group = "restore.example.com"

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.restore.example.com}
spec:
  group: restore.example.com
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, x-kubernetes-preserve-unknown-fields: true}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

// DefineTypes defines types of custom resources that are not defined yet.
func (e *Env) DefineTypes(kinds ...string) {
	e.Helper()
	for _, kind := range kinds {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		crd.SetName(strings.ToLower(kind) + "s." + Group)
		if e.Read(crd) == nil {
			e.Create(fmt.Sprintf(definition, strings.ToLower(kind), kind))
		}
	}
}

// WaitUntilCollected waits until a garbage collector collects objects of types that DefineTypes has defined, and so has seen
// the objects that exist. The built-in one looks for new types every 30 seconds. When it has found some, it may process an owner
// that orphans before it has seen the dependents: it then releases the owner, and deletes the dependents.
func (e *Env) WaitUntilCollected(kinds ...string) {
	e.Helper()
	for _, kind := range kinds {
		absent := &unstructured.Unstructured{}
		absent.SetAPIVersion("v1")
		absent.SetKind("ConfigMap")
		absent.SetName("absent")
		absent.SetUID("a-uid-of-no-object")
		e.WaitForDeletion(e.Custom(kind, "collected", absent))
	}
}

// Custom creates a custom resource, whose type is defined.
func (e *Env) Custom(kind, name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	return e.Create(fmt.Sprintf("{apiVersion: %s/v1, kind: %s, metadata: {name: %s, labels: {l: v}, annotations: {note: text}}, spec: {size: 3, list: [a, {b: c}]}}", Group, kind, name), owners...)
}

// Tree creates three levels of custom resources, of which one has two owners, and a ConfigMap. The
// root is the first.
func (e *Env) Tree() []*unstructured.Unstructured {
	e.Helper()
	e.DefineTypes("Root", "Middle", "Leaf")
	root := e.Custom("Root", "root")
	left, right := e.Custom("Middle", "left", root), e.Custom("Middle", "right", root)
	shared := e.Custom("Leaf", "shared", left, right)
	return []*unstructured.Unstructured{root, left, right, shared, e.Custom("Leaf", "leaf", left), e.ConfigMap("settings", right)}
}

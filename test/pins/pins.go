// Package pins writes into the policies and finalizers of tests the digest of their
// module, as their authors would, so that tests need not name it. It reads no cluster.
package pins

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/policies/source"
)

// None is what a test writes as the digest to have no pin.
const None = "none"

// Of is the digest of a module of one file with this text.
func Of(text string) string { return source.Digest([]source.File{{Data: []byte(text)}}) }

// Pin writes the digest of its module into a policy or finalizer that names none. The
// module is looked up by its kind, namespace and name; nil: it is not there, and the
// object stays as it is.
func Pin(o *unstructured.Unstructured, find func(kind, namespace, name string) *unstructured.Unstructured) error {
	kind := o.GetKind()
	if o.GroupVersionKind().Group != "gleaner.dev" || strings.HasSuffix(kind, "PolicyModule") {
		return nil
	}
	reference, found, err := unstructured.NestedStringMap(o.Object, "spec", "module")
	if err != nil || !found {
		return err
	}
	switch reference["digest"] {
	case None:
		unstructured.RemoveNestedField(o.Object, "spec", "module", "digest")
		return nil
	case "":
	default:
		return nil
	}
	scope := map[bool]string{true: "ClusterPolicyModule", false: "PolicyModule"}[strings.HasPrefix(kind, "Cluster")]
	m := find(cmp.Or(reference["kind"], scope), o.GetNamespace(), reference["name"])
	if m == nil {
		return nil
	}
	digest, _, _ := unstructured.NestedString(m.Object, "status", "digest")
	if text, inline, _ := unstructured.NestedString(m.Object, "spec", "rego", "inline"); inline {
		digest = Of(text) // whatever the status is about
	}
	if digest == "" {
		return nil
	}
	return unstructured.SetNestedField(o.Object, digest, "spec", "module", "digest")
}

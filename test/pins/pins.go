// Package pins writes into the policies and finalizers of tests the digest of their
// module, as their authors would, so that tests need not name it. It reads no cluster.
package pins

import (
	"cmp"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

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

// reference is where a manifest names a module without a digest.
var reference = regexp.MustCompile(`(\n *module: \{)([^}\n]*)\}`)

// Manifest writes the digests of modules whose Rego is inline in a text of YAML documents
// into the policies and finalizers of that text that name them as module: {name: …}.
func Manifest(text string) string {
	documents := strings.Split(text, "\n---")
	objects := make([]*unstructured.Unstructured, len(documents))
	for i, document := range documents {
		objects[i] = &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document+"\n"), &objects[i].Object); err != nil || objects[i].Object == nil {
			objects[i].Object = map[string]any{}
		}
	}
	for i, document := range documents {
		o := objects[i].DeepCopy()
		before, _, _ := unstructured.NestedString(o.Object, "spec", "module", "digest")
		if err := Pin(o, among(objects)); err != nil {
			continue
		}
		if digest, _, _ := unstructured.NestedString(o.Object, "spec", "module", "digest"); digest != before && before == "" {
			documents[i] = reference.ReplaceAllString(document, "$1$2, digest: "+digest+"}")
		}
	}
	return strings.Join(documents, "\n---")
}

// among looks a module up among objects.
func among(objects []*unstructured.Unstructured) func(kind, namespace, name string) *unstructured.Unstructured {
	return func(kind, namespace, name string) *unstructured.Unstructured {
		for _, m := range objects {
			if m.GetKind() == kind && m.GetName() == name && (m.GetNamespace() == namespace || strings.HasPrefix(kind, "Cluster")) {
				return m
			}
		}
		return nil
	}
}

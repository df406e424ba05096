// Package pins fills in the module digests in the policies and finalizers of tests,
// so that tests need not compute them. It does not read from a cluster.
package pins

import (
	"cmp"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/policies/source"
)

// None as a digest means that Pin adds none.
const None = "none"

// Of returns the digest of a module of one file with this text.
func Of(text string) string { return source.Digest([]source.File{{Data: []byte(text)}}) }

// Pin sets the digest of the module in a policy or finalizer without one. The
// module is looked up by its kind, namespace and name; if find returns nil, the
// object is not changed.
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
		digest = Of(text) // regardless of the status
	}
	if digest == "" {
		return nil
	}
	return unstructured.SetNestedField(o.Object, digest, "spec", "module", "digest")
}

// reference matches a reference to a module without a digest in a manifest.
var reference = regexp.MustCompile(`(\n *module: \{)([^}\n]*)\}`)

// Manifest sets the digests in policies and finalizers of a text of YAML documents that name
// modules as module: {name: …}, for modules of the same text with inline Rego.
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
		if err := Pin(o, lookup(objects)); err != nil {
			continue
		}
		if digest, _, _ := unstructured.NestedString(o.Object, "spec", "module", "digest"); digest != before && before == "" {
			documents[i] = reference.ReplaceAllString(document, "$1$2, digest: "+digest+"}")
		}
	}
	return strings.Join(documents, "\n---")
}

// lookup returns a lookup of modules among objects.
func lookup(objects []*unstructured.Unstructured) func(kind, namespace, name string) *unstructured.Unstructured {
	return func(kind, namespace, name string) *unstructured.Unstructured {
		for _, m := range objects {
			if m.GetKind() == kind && m.GetName() == name && (m.GetNamespace() == namespace || strings.HasPrefix(kind, "Cluster")) {
				return m
			}
		}
		return nil
	}
}

// Package references finds the ConfigMaps, Secrets, PersistentVolumeClaims and ServiceAccounts that an object refers to: the
// configuration and the storage that go unnoticed when what used them is gone.
//
// It is pure: an object comes in, and its references come out. Who lists objects, and reads again before anything is deleted, is not
// its concern. What it can't read is an error, and never "no references": with one object unread, nothing is unused.
package references

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of objects that others refer to. All are in the core group.
type Kind string

// The kinds.
const (
	ConfigMap      Kind = "ConfigMap"
	Secret         Kind = "Secret"
	Claim          Kind = "PersistentVolumeClaim"
	ServiceAccount Kind = "ServiceAccount"
)

// Referred reports whether others can refer to objects of a kind.
func Referred(kind schema.GroupKind) bool {
	switch Kind(kind.Kind) {
	case ConfigMap, Secret, Claim, ServiceAccount:
		return kind.Group == ""
	default:
		return false
	}
}

// Reference is what an object says about another one, which may not exist. Whether it is optional makes no difference: it is used
// while it exists.
type Reference struct {
	Kind            Kind
	Namespace, Name string

	// AnyOrdinal is true for the claims of a StatefulSet. Then the reference is to every claim named NAME-ORDINAL, including
	// those for replicas that were scaled down: they are used again when the StatefulSet is scaled up.
	AnyOrdinal bool
}

// String returns the reference for people.
func (r Reference) String() string {
	name := r.Name
	if r.AnyOrdinal {
		name += "-N"
	}
	return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, name)
}

// Reader returns references of an object.
type Reader func(*unstructured.Unstructured) ([]Reference, error)

// reader returns the references of an object of one kind.
type reader func(*collector, *unstructured.Unstructured) error

// readers has a reader for each kind whose objects can refer to others.
var readers = map[schema.GroupKind]reader{
	{Kind: "Pod"}:                   readPod,
	{Kind: "PodTemplate"}:           template("template", "spec"),
	{Kind: "ReplicationController"}: template("spec", "template", "spec"),
	{Kind: "ServiceAccount"}:        readServiceAccount,
	{Kind: "PersistentVolume"}:      readVolume,
	{Kind: "PersistentVolumeClaim"}: readClaim,

	{Group: "apps", Kind: "Deployment"}:  template("spec", "template", "spec"),
	{Group: "apps", Kind: "ReplicaSet"}:  template("spec", "template", "spec"),
	{Group: "apps", Kind: "DaemonSet"}:   template("spec", "template", "spec"),
	{Group: "apps", Kind: "StatefulSet"}: readStatefulSet,
	// The revisions that a rollback returns to are whole templates.
	{Group: "apps", Kind: "ControllerRevision"}: template("data", "spec", "template", "spec"),

	{Group: "batch", Kind: "Job"}:     template("spec", "template", "spec"),
	{Group: "batch", Kind: "CronJob"}: template("spec", "jobTemplate", "spec", "template", "spec"),

	{Group: "networking.k8s.io", Kind: "Ingress"}:                  readIngress,
	{Group: "gateway.networking.k8s.io", Kind: "Gateway"}:          readGateway,
	{Group: "gateway.networking.k8s.io", Kind: "BackendTLSPolicy"}: readBackendTLSPolicy,

	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        readSubjects,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: readSubjects,

	{Group: "storage.k8s.io", Kind: "StorageClass"}:                   readParameters("parameters"),
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"}:   readParameters("parameters"),
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshot"}:        readSnapshot,
	{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotContent"}: readAnnotations,

	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: readAnnotations,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:   readAnnotations,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:                           readAnnotations,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:               readAnnotations,
}

// Kinds returns the kinds whose objects can refer to others. Nothing counts as unused until all objects of those kinds that the
// cluster serves have been read.
func Kinds() []schema.GroupKind {
	kinds := make([]schema.GroupKind, 0, len(readers))
	for k := range readers {
		kinds = append(kinds, k)
	}
	return kinds
}

// within are the kinds whose objects refer to objects of their own namespace only.
var within = []schema.GroupKind{
	{Kind: "Pod"}, {Kind: "PodTemplate"}, {Kind: "ReplicationController"}, {Kind: "ServiceAccount"},
	{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "ReplicaSet"}, {Group: "apps", Kind: "DaemonSet"}, {Group: "apps", Kind: "StatefulSet"},
	{Group: "apps", Kind: "ControllerRevision"}, {Group: "batch", Kind: "Job"}, {Group: "batch", Kind: "CronJob"}, {Group: "networking.k8s.io", Kind: "Ingress"},
}

// AcrossNamespaces reports whether objects of a kind may refer to objects of other namespaces.
func AcrossNamespaces(kind schema.GroupKind) bool { return !slices.Contains(within, kind) }

// Of returns the references of an object, some more than once. The object is not changed. An object of a kind that is not one of
// Kinds is an error.
func Of(o *unstructured.Unstructured) ([]Reference, error) {
	read, known := readers[o.GroupVersionKind().GroupKind()]
	if !known {
		return nil, fmt.Errorf("%s %s: references of this kind are not known", o.GetKind(), name(o))
	}
	c := &collector{namespace: o.GetNamespace()}
	if err := read(c, o); err != nil {
		return nil, fmt.Errorf("references of %s %s: %w", o.GetKind(), name(o), err)
	}
	return c.found, nil
}

func name(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// collector collects the references of an object.
type collector struct {
	namespace string // of the object
	found     []Reference
}

// add adds a reference in the object's namespace, unless the name is empty.
func (c *collector) add(kind Kind, name string) { c.addIn(c.namespace, kind, name) }

func (c *collector) addIn(namespace string, kind Kind, name string) {
	if name != "" && namespace != "" {
		c.found = append(c.found, Reference{Kind: kind, Namespace: namespace, Name: name})
	}
}

// decode decodes a field of an object, and reports whether it has that.
func decode(o *unstructured.Unstructured, into any, path ...string) (bool, error) {
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil || !found || value == nil {
		return false, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return false, fmt.Errorf("%s is no object", strings.Join(path, "."))
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, into); err != nil {
		return false, fmt.Errorf("%s: %w", strings.Join(path, "."), err)
	}
	return true, nil
}

package restore

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds that are treated specially.
var (
	namespaceKind      = schema.GroupKind{Kind: "Namespace"}
	definitionKind     = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	volumeKind         = schema.GroupKind{Kind: "PersistentVolume"}
	claimKind          = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	serviceAccountKind = schema.GroupKind{Kind: "ServiceAccount"}
	secretKind         = schema.GroupKind{Kind: "Secret"}
	configMapKind      = schema.GroupKind{Kind: "ConfigMap"}
	serviceKind        = schema.GroupKind{Kind: "Service"}
	podKind            = schema.GroupKind{Kind: "Pod"}
	jobKind            = schema.GroupKind{Group: "batch", Kind: "Job"}
)

// Keys returns the keys that have to be read for a plan: those at which objects are restored,
// of their owners, of their namespaces, and of the volumes of claims. The scope of
// an owner's type is not known here: of its two keys, only the one that exists needs to be read.
func Keys(archived []*unstructured.Unstructured, namespace string) []Key {
	b := builder{Input: Input{Namespace: namespace}}
	var keys []Key
	known := map[Key]struct{}{}
	add := func(k Key) {
		if _, ok := known[k]; !ok {
			known[k] = struct{}{}
			keys = append(keys, k)
		}
	}
	for _, o := range archived {
		at := b.target(o)
		add(at)
		if at.Namespace != "" {
			add(Key{namespaceKind, "", at.Namespace})
		}
		for _, ref := range o.GetOwnerReferences() {
			gk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
			add(Key{gk, at.Namespace, ref.Name})
			add(Key{gk, "", ref.Name})
		}
		if volume := volumeOf(o); volume != "" && at.GroupKind == claimKind {
			add(Key{volumeKind, "", volume})
		}
	}
	return keys
}

func isTerminating(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil }

// place reports why nothing can be created at a key, and where the problem is.
func (b *builder) place(key Key, live Live) (at Key, problem string) {
	switch live.Presence {
	case Present:
		if isTerminating(live.Object) {
			return key, "is being deleted: wait until it is gone; gleaner explain shows what it waits for"
		}
		return key, "exists already, with UID " + string(live.Object.GetUID()) + ": delete or rename it, or restore to another namespace"
	case Absent:
		return b.namespaceProblem(key)
	case Unserved:
		if _, ok := b.defined[key.GroupKind]; !ok {
			return key, "is of a type that the API server does not serve" + because(live) + ": restore or create its CustomResourceDefinition first"
		}
		return b.namespaceProblem(key)
	default:
		return key, "is not known to be absent: it could not be read" + because(live)
	}
}

// because returns the reason why something is not known, for the end of a sentence.
func because(l Live) string {
	if l.Reason == "" {
		return ""
	}
	return " (" + l.Reason + ")"
}

// namespaceProblem reports why nothing can be created in a namespace. One that could not be
// read is none: the API server creates nothing in a namespace that does not exist.
func (b *builder) namespaceProblem(key Key) (at Key, problem string) {
	at = Key{namespaceKind, "", key.Namespace}
	if _, planned := b.planned[at]; planned || key.Namespace == "" {
		return key, ""
	}
	switch live := b.Live[at]; {
	case live.Presence == Present && isTerminating(live.Object):
		return at, "is being deleted: wait until it is gone, or restore to another namespace"
	case live.Presence == Absent:
		return at, "does not exist, and is not restored: create it first, or restore to another namespace"
	default:
		return key, ""
	}
}

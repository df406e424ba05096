package candidate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KeepAnnotation keeps an object from all retention policies if its value is "true".
const KeepAnnotation = "gleaner.dev/keep"

// systemNamespaces are what a cluster does not work without.
var systemNamespaces = []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// protectedBy returns why retention must not touch an object, whatever a policy says; "" if it may.
func protectedBy(o *unstructured.Unstructured, options Options) string {
	kind := o.GroupVersionKind().GroupKind()
	inSystem := slices.Contains(systemNamespaces, o.GetNamespace()) || o.GetNamespace() != "" && o.GetNamespace() == options.Namespace
	switch {
	case o.GetUID() == "":
		return "it has no UID"
	case inSystem:
		return fmt.Sprintf("it is in namespace %s", o.GetNamespace())
	case kind.Group == "gleaner.dev":
		return "it configures Gleaner"
	case kind.Group == "":
		if why := protectedCore(kind, o, options); why != "" {
			return why
		}
	}
	if ref := metav1.GetControllerOf(o); ref != nil && !options.IncludeControlled {
		return fmt.Sprintf("%s %s controls it", ref.Kind, ref.Name)
	}
	return ""
}

func protectedCore(kind schema.GroupKind, o *unstructured.Unstructured, options Options) string {
	switch kind.Kind {
	case "Namespace":
		if name := o.GetName(); name == metav1.NamespaceDefault || name == options.Namespace || slices.Contains(systemNamespaces, name) {
			return "the cluster or Gleaner needs it"
		}
	case "ConfigMap":
		if o.GetName() == "kube-root-ca.crt" {
			return "each namespace has it"
		}
	case "ServiceAccount":
		if o.GetName() == "default" {
			return "each namespace has it"
		}
	case "Secret":
		return protectedSecret(o)
	case "Node":
		return "it stands for a machine"
	}
	return ""
}

// helmRelease is the type of the Secrets in which Helm stores its releases.
const helmRelease = "helm.sh/release.v1"

// protectedSecret returns why a Secret is not touched that nothing needs to refer to.
func protectedSecret(o *unstructured.Unstructured) string {
	kind, _, err := unstructured.NestedString(o.Object, "type")
	switch {
	case err != nil:
		return fmt.Sprintf("its type can't be read: %s", err)
	case kind == string(corev1.SecretTypeServiceAccountToken):
		return "it is the token of a ServiceAccount"
	case kind == string(corev1.SecretTypeBootstrapToken):
		return "nodes join with it"
	case kind == helmRelease && !isHelmHistory(o):
		return "it is the current release of Helm, or one in progress"
	default:
		return ""
	}
}

// isHelmHistory reports whether Helm needs a Secret only to roll back.
func isHelmHistory(o *unstructured.Unstructured) bool {
	switch o.GetLabels()["status"] {
	case "superseded", "uninstalled", "failed":
		return true
	default:
		return false
	}
}

// isReferredTo reports whether the objects of a kind are used by others that refer to them.
func isReferredTo(o *unstructured.Unstructured) bool {
	kind := o.GroupVersionKind().GroupKind()
	if kind.Group != "" {
		return false
	}
	switch kind.Kind {
	case "ConfigMap", "PersistentVolumeClaim", "ServiceAccount":
		return true
	case "Secret":
		t, _, _ := unstructured.NestedString(o.Object, "type")
		return t != helmRelease // nothing refers to those: what Helm needs of them is protected
	default:
		return false
	}
}

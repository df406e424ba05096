package server

import (
	"errors"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

var (
	core  = schema.GroupVersion{Version: "v1"}
	apps  = schema.GroupVersion{Group: "apps", Version: "v1"}
	batch = schema.GroupVersion{Group: "batch", Version: "v1"}

	configMap = kind{GroupVersionResource: core.WithResource("configmaps"), kind: "ConfigMap"}
	namespace = kind{GroupVersionResource: core.WithResource("namespaces"), kind: "Namespace", clusterScoped: true}
	pod       = kind{GroupVersionResource: core.WithResource("pods"), kind: "Pod", rest: map[string]any{"spec": containers("Always")}}

	replicationController = kind{core.WithResource("replicationcontrollers"), "ReplicationController", false, map[string]any{
		"spec": map[string]any{"replicas": int64(1), "selector": labels, "template": template("Always")},
	}}
	job = kind{batch.WithResource("jobs"), "Job", false, map[string]any{
		"spec": map[string]any{"template": template("Never")},
	}}
	cronJob = kind{batch.WithResource("cronjobs"), "CronJob", false, map[string]any{
		"spec": map[string]any{
			"schedule":    "0 0 1 1 *",
			"jobTemplate": map[string]any{"spec": map[string]any{"template": template("Never")}},
		},
	}}
	deployment  = kind{apps.WithResource("deployments"), "Deployment", false, selecting()}
	replicaSet  = kind{apps.WithResource("replicasets"), "ReplicaSet", false, selecting()}
	daemonSet   = kind{apps.WithResource("daemonsets"), "DaemonSet", false, selecting()}
	statefulSet = kind{apps.WithResource("statefulsets"), "StatefulSet", false, selecting()}

	labels = map[string]any{"app": "thing"}
)

func containers(restart string) map[string]any {
	return map[string]any{
		"restartPolicy": restart,
		"containers":    []any{map[string]any{"name": "pause", "image": "pause"}},
	}
}

func template(restart string) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": labels}, "spec": containers(restart)}
}

func selecting() map[string]any {
	return map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": labels}, "template": template("Always"),
	}}
}

// eventKind is an Event of either group: both are stored as one type.
func (a *api) eventKind(group string) kind {
	k := kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: "events"}, kind: "Event"}
	k.rest = map[string]any{"involvedObject": map[string]any{"namespace": a.ns}}
	if group != "" {
		k.rest = map[string]any{
			"regarding": map[string]any{"namespace": a.ns}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Test",
			"reportingController": "gleaner.dev/test", "reportingInstance": "test", "reason": "Test", "type": "Normal",
		}
	}
	return k
}

// createType creates a custom type, and waits until objects can be created.
func (a *api) createType() kind {
	a.Helper()
	plural := "things" + rand.String(6)
	group := plural + ".gleaner.dev"
	k := kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}, kind: "Thing"}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: k.kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				},
			}},
		},
	}
	crds := apiextensions.NewForConfigOrDie(a.config).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(a.Context(), crd, metav1.CreateOptions{}); err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		if err := crds.Delete(a.cleanupContext(), crd.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			a.Error(err)
		}
	})
	devtest.Eventually(a, timeout, func() error {
		_, err := a.client(k).Get(a.Context(), "none", metav1.GetOptions{})
		if details := new(apierrors.StatusError); errors.As(err, &details) && details.ErrStatus.Details.Name == "none" {
			return nil // answered by the type's endpoint, not by the server's 404 handler
		}
		return err
	})
	return k
}

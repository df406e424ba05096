package policies

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// A policy that denies everything leaves system components, and Gleaner's own resources, as they are.
func TestProtect_WhatMustRemainDeletable(t *testing.T) {
	o := newDedicatedEnv(t)
	client := kubernetes.NewForConfigOrDie(o.config)
	p := o.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: everything}
spec:
  resources: [{apiGroups: ["*"], resources: ["*"]}]
  fixed: {protect: {decision: Deny, reason: nothing is deleted}}
  mode: Enforce`)
	o.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	kept := o.createConfigMap("kept")
	o.waitForDenied(kept, "nothing is deleted")

	labels := map[string]string{"app": "web"}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		},
	}}
	if _, err := client.AppsV1().Deployments(o.ns).Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForPods := func(n int) {
		o.eventually(func() error {
			pods, err := client.CoreV1().Pods(o.ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
			if err == nil && len(pods.Items) != n {
				err = fmt.Errorf("%d pods", len(pods.Items))
			}
			return err
		})
	}
	waitForPods(2)
	if _, err := client.AppsV1().Deployments(o.ns).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForPods(0)

	inSystem, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "free"}}, metav1.CreateOptions{})
	if err == nil {
		err = client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(t.Context(), inSystem.Name, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Errorf("an object in kube-system, which is Gleaner's namespace here: %v", err)
	}
	if err := o.tryDelete(p); err != nil {
		t.Errorf("the policy itself: %v", err)
	}
	o.waitForAllowed(kept)
}

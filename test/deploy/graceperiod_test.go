package deploy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/graceperiod"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

const inheritsAll = `{"apiVersion":"gleaner.dev/v1alpha1","kind":"ClusterGCPolicy","metadata":{"name":"inherit"},"spec":{
  "resources":[{"apiGroups":[""],"resources":["configmaps"]}],"objectSelector":{"matchLabels":{"inherit":"true"}},
  "fixed":{"propagate":{"decision":"Foreground","inheritGracePeriod":true}},"mode":"Enforce"}}`

// expectInheritsGracePeriods checks that the API server asks the operator about the grace periods of requests, for as long as a
// policy needs that.
func (o overlay) expectInheritsGracePeriods(w *env) {
	w.Helper()
	policy := filepath.Join(w.TempDir(), "inherit.json")
	writeFile(w.T, policy, []byte(inheritsAll), 0o600)
	kubectl(w.T, o.cluster, "apply", "-f", policy)
	kubectl(w.T, o.cluster, "wait", "clustergcpolicies/inherit", "--for=condition=Enforcing", "--timeout", timeout.String())
	attempt := 0
	devtest.Eventually(w, timeout, func() error {
		attempt++
		return w.requestGracePeriod(fmt.Sprintf("inherit-%d", attempt))
	})
	kubectl(w.T, o.cluster, "delete", "-f", policy, "--timeout", timeout.String())
	devtest.Eventually(w, timeout, func() error {
		_, err := w.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(w.Context(), graceperiod.ConfigurationName, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("webhook configuration still exists: %w", err)
		}
		return nil
	})
}

// requestGracePeriod deletes an object with a grace period, and returns an error if that was not stored.
func (w *env) requestGracePeriod(name string) error {
	w.Helper()
	all := w.kube.CoreV1().ConfigMaps(w.ns)
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"inherit": "true"}, Finalizers: []string{"test.gleaner.dev/stay"}}
	if _, err := all.Create(w.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return err
	}
	devtest.Eventually(w, timeout, func() error {
		live, err := all.Get(w.Context(), name, metav1.GetOptions{})
		if err == nil && !slices.Contains(live.Finalizers, graph.Hold) {
			err = errors.New("object has no hold")
		}
		return err
	})
	if err := all.Delete(w.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](5)}); err != nil {
		return err
	}
	live, err := all.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, err := all.Patch(w.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, stored := live.Annotations[objectstate.GracePeriodAnnotation]; !stored {
		return errors.New("the grace period of a request is not stored")
	}
	return nil
}

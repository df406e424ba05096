package devcluster_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestServingCertificate_WorksForWebhook(t *testing.T) {
	cluster := devtest.Shared(t)
	client := clientFor(t, cluster.RESTConfig())
	namespace := devtest.Namespace(t, cluster.RESTConfig())
	certificate, caBundle, err := cluster.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(refuse))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)

	webhooks := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	configuration, err := webhooks.Create(t.Context(), refusal(server.URL, caBundle, namespace), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "validatingwebhookconfiguration", configuration.Name); err != nil {
			t.Error(err)
		}
	})
	devtest.Eventually(t, testTimeout, func() error { // the API server learns of it by a watch
		configMaps := client.CoreV1().ConfigMaps(namespace)
		_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "asked-"}}, metav1.CreateOptions{})
		switch {
		case err == nil:
			return errors.New("the webhook was not asked")
		case strings.Contains(err.Error(), "refused on loopback"):
			return nil
		default:
			return fmt.Errorf("create: %w", err)
		}
	})
}

func refuse(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{
		UID:    review.Request.UID,
		Result: &metav1.Status{Message: "refused on loopback"},
	}
	if err := json.NewEncoder(w).Encode(review); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// refusal asks the webhook about config maps of one namespace, so that tests
// beside this one are not refused.
func refusal(url string, caBundle []byte, namespace string) *registrationv1.ValidatingWebhookConfiguration {
	none := registrationv1.SideEffectClassNone
	return &registrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "refusal-"},
		Webhooks: []registrationv1.ValidatingWebhook{{
			Name:                    "refusal.gleaner.dev",
			ClientConfig:            registrationv1.WebhookClientConfig{URL: &url, CABundle: caBundle},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create},
				Rule:       registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
}

// Package hook serves validating admission webhooks on loopback, for tests: a
// test reads the API server's requests, and answers them.
package hook

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const (
	timeout = time.Minute
	probe   = "hook-probe"
)

// Options configure what a webhook is called for, and its answers.
type Options struct {
	Namespace  string
	Operations []registrationv1.OperationType
	Resources  []string // of the core group

	// Review refuses a request with a status, or allows it with nil. It may be
	// called from several goroutines. Nil allows everything.
	Review func(context.Context, *admissionv1.AdmissionRequest) *metav1.Status
}

// A Call is one request to a webhook.
type Call struct {
	Operation admissionv1.Operation
	Name      string // name in the request; empty in a deletecollection
	Object    string // name of the old object
}

// A Hook is a registered webhook.
type Hook struct {
	options Options

	mu    sync.Mutex // covers the fields below
	ready bool       // the API server has called the webhook for the probe
	calls []Call
}

// Serve runs a webhook until the test ends. It returns once the API server calls
// it.
func Serve(t testing.TB, cluster *devcluster.Cluster, o Options) *Hook {
	t.Helper()
	certificate, caBundle, err := cluster.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	h := &Hook{options: o}
	server := httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)

	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	made, err := configurations.Create(t.Context(), h.configuration(server.URL, caBundle), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := configurations.Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	h.waitUntilCalled(t, client)
	return h
}

// waitUntilCalled creates a ConfigMap in a dry run until the webhook is called for it.
func (h *Hook) waitUntilCalled(t testing.TB, client kubernetes.Interface) {
	t.Helper()
	devtest.Eventually(t, timeout, func() error { // the API server watches configurations
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: probe}}
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		if _, err := client.CoreV1().ConfigMaps(h.options.Namespace).Create(t.Context(), configMap, dry); err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.ready {
			return errors.New("webhook was not called")
		}
		return nil
	})
}

// Calls returns the calls so far.
func (h *Hook) Calls() []Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// ServeHTTP implements http.Handler.
func (h *Hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	refusal, err := h.review(r.Context(), review.Request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: refusal == nil, Result: refusal}
	if err := json.NewEncoder(w).Encode(review); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (h *Hook) review(ctx context.Context, request *admissionv1.AdmissionRequest) (*metav1.Status, error) {
	if request.Name == probe {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ready = true
		return nil, nil
	}
	if !slices.Contains(h.options.Operations, registrationv1.OperationType(request.Operation)) {
		return nil, nil // CREATE is registered for the probe only
	}
	var before metav1.PartialObjectMetadata
	if len(request.OldObject.Raw) != 0 {
		if err := json.Unmarshal(request.OldObject.Raw, &before); err != nil {
			return nil, fmt.Errorf("read old object: %w", err)
		}
	}
	h.mu.Lock()
	h.calls = append(h.calls, Call{Operation: request.Operation, Name: request.Name, Object: before.Name})
	h.mu.Unlock()
	if h.options.Review == nil {
		return nil, nil
	}
	return h.options.Review(ctx, request), nil
}

// configuration matches one namespace, so that other tests are not affected.
func (h *Hook) configuration(url string, caBundle []byte) *registrationv1.ValidatingWebhookConfiguration {
	none := registrationv1.SideEffectClassNone // none in a dry run
	core := func(resources ...string) registrationv1.Rule {
		return registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources}
	}
	return &registrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "hook-"},
		Webhooks: []registrationv1.ValidatingWebhook{{
			Name:                    "hook.gleaner.dev",
			ClientConfig:            registrationv1.WebhookClientConfig{URL: &url, CABundle: caBundle},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: h.options.Namespace}},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []registrationv1.RuleWithOperations{
				{Operations: h.options.Operations, Rule: core(h.options.Resources...)},
				{Operations: []registrationv1.OperationType{registrationv1.Create}, Rule: core("configmaps")},
			},
		}},
	}
}

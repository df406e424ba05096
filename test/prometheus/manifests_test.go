package prometheus

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Other tests install the third-party types that config uses without their
// schemas.
func TestThirdPartyObjects_MatchTheirTypes(t *testing.T) {
	strict(t, read(t, "config/monitoring/rules.yaml"), &monitoring.PrometheusRule{})
	for _, document := range bytes.Split(read(t, "config/cert-manager/certificate.yaml"), []byte("\n---\n")) {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{"Issuer": &certmanager.Issuer{}, "Certificate": &certmanager.Certificate{}}[kind.Kind]
		strict(t, document, into)
	}
}

func TestServiceMonitor_SelectsTheService(t *testing.T) {
	var monitor monitoring.ServiceMonitor
	var service corev1.Service
	strict(t, read(t, "config/monitoring/service_monitor.yaml"), &monitor)
	strict(t, read(t, "config/manager/service.yaml"), &service)
	if !maps.Equal(monitor.Spec.Selector.MatchLabels, service.Labels) || monitor.Namespace != service.Namespace {
		t.Errorf("ServiceMonitor selects %v in %s, Service has %v in %s",
			monitor.Spec.Selector.MatchLabels, monitor.Namespace, service.Labels, service.Namespace)
	}
	var node monitoring.ServiceMonitor
	var nodes corev1.Service
	strict(t, read(t, "config/monitoring/node_monitor.yaml"), &node)
	strict(t, read(t, "config/node/service.yaml"), &nodes)
	if !maps.Equal(node.Spec.Selector.MatchLabels, nodes.Labels) || !slices.Equal(node.Spec.NamespaceSelector.MatchNames, []string{nodes.Namespace}) || node.Spec.Endpoints[0].Port != nodes.Spec.Ports[0].Name {
		t.Errorf("ServiceMonitor of nodes selects %+v, Service is %+v", node.Spec, nodes)
	}
	for _, e := range monitor.Spec.Endpoints {
		if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == e.Port }) {
			t.Errorf("Service has no port %s", e.Port)
		}
	}
	if service.Name != "gleaner" {
		t.Errorf("alerts use the job gleaner, but the Service is %s", service.Name)
	}
}

func strict(t *testing.T, document []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(document, into); err != nil {
		t.Error(err)
	}
}

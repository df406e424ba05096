package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
)

// thirdPartyCRD is the CRD of a third-party type without its schema;
// test/prometheus validates the objects that are applied here.
const thirdPartyCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: KIND, plural: PLURAL, singular: SINGULAR}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`

// createThirdPartyCRDs makes the API server serve third-party types.
func createThirdPartyCRDs(t *testing.T, cluster *devcluster.Cluster, group string, kinds ...string) {
	t.Helper()
	var manifest strings.Builder
	for _, kind := range kinds {
		singular := strings.ToLower(kind)
		manifest.WriteString(strings.NewReplacer("GROUP", group, "KIND", kind, "PLURAL", singular+"s", "SINGULAR", singular).Replace(thirdPartyCRD))
	}
	path := filepath.Join(t.TempDir(), "definitions.yaml")
	writeFile(t, path, []byte(manifest.String()), 0o600)
	kubectl(t, cluster, "apply", "-f", path)
	kubectl(t, cluster, "wait", "-f", path, "--for=condition=Established", "--timeout", timeout.String())
}

// certManager acts as cert-manager: it issues the requested certificate.
func certManager(t *testing.T, cluster *devcluster.Cluster) (run func()) {
	t.Helper()
	const group = "cert-manager.io"
	createThirdPartyCRDs(t, cluster, group, "Certificate", "Issuer")
	return func() {
		request, err := dynamic.NewForConfigOrDie(cluster.RESTConfig()).
			Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "certificates"}).
			Namespace(namespace).Get(t.Context(), "gleaner-webhook", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := issueCertificate(t, cluster, request); err != nil {
			t.Fatal(err)
		}
	}
}

func issueCertificate(t *testing.T, cluster *devcluster.Cluster, request *unstructured.Unstructured) error {
	t.Helper()
	names, _, err := unstructured.NestedStringSlice(request.Object, "spec", "dnsNames")
	if err != nil {
		return err
	}
	name, _, err := unstructured.NestedString(request.Object, "spec", "secretName")
	if err != nil {
		return err
	}
	certificate, authority, err := cluster.ServingCertificate(names...)
	if err != nil {
		return err
	}
	data, err := encode(certificate)
	if err != nil {
		return err
	}
	data["ca.crt"] = authority
	_, err = kubernetes.NewForConfigOrDie(cluster.RESTConfig()).CoreV1().Secrets(namespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: data}, metav1.CreateOptions{})
	return err
}

// encode encodes a certificate and its key for a Secret.
func encode(certificate tls.Certificate) (map[string][]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("encode the key: %w", err)
	}
	var chain []byte
	for _, der := range certificate.Certificate {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return map[string][]byte{
		corev1.TLSCertKey:       chain,
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}, nil
}

package references

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// readVolume reads the Secrets of a volume. Its claim is bound to it, which is no use: each claim has a volume.
func readVolume(c *collector, o *unstructured.Unstructured) error {
	var spec corev1.PersistentVolumeSpec
	if _, err := decode(o, &spec, "spec"); err != nil {
		return err
	}
	claim := ""
	if r := spec.ClaimRef; r != nil {
		claim = r.Namespace
	}
	secret := func(r *corev1.SecretReference) {
		if r == nil {
			return
		}
		namespace := r.Namespace
		if namespace == "" { // some drivers mean that of the claim
			namespace = claim
		}
		c.addIn(namespace, Secret, r.Name)
	}
	switch s := &spec.PersistentVolumeSource; {
	case s.CSI != nil:
		for _, r := range []*corev1.SecretReference{
			s.CSI.ControllerPublishSecretRef, s.CSI.NodeStageSecretRef, s.CSI.NodePublishSecretRef, s.CSI.ControllerExpandSecretRef, s.CSI.NodeExpandSecretRef,
		} {
			secret(r)
		}
	case s.AzureFile != nil:
		namespace := claim
		if s.AzureFile.SecretNamespace != nil && *s.AzureFile.SecretNamespace != "" {
			namespace = *s.AzureFile.SecretNamespace
		}
		c.addIn(namespace, Secret, s.AzureFile.SecretName)
	case s.StorageOS != nil:
		if r := s.StorageOS.SecretRef; r != nil {
			secret(&corev1.SecretReference{Namespace: r.Namespace, Name: r.Name})
		}
	case s.RBD != nil:
		secret(s.RBD.SecretRef)
	case s.ISCSI != nil:
		secret(s.ISCSI.SecretRef)
	case s.CephFS != nil:
		secret(s.CephFS.SecretRef)
	case s.Cinder != nil:
		secret(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		secret(s.FlexVolume.SecretRef)
	case s.ScaleIO != nil:
		secret(s.ScaleIO.SecretRef)
	}
	return nil
}

func readClaim(c *collector, o *unstructured.Unstructured) error {
	var spec corev1.PersistentVolumeClaimSpec
	if _, err := decode(o, &spec, "spec"); err != nil {
		return err
	}
	c.claimSpec(&spec)
	return nil
}

func readSnapshot(c *collector, o *unstructured.Unstructured) error {
	name, _, err := unstructured.NestedString(o.Object, "spec", "source", "persistentVolumeClaimName")
	c.add(Claim, name)
	return err
}

func readIngress(c *collector, o *unstructured.Unstructured) error {
	var spec networkingv1.IngressSpec
	if _, err := decode(o, &spec, "spec"); err != nil {
		return err
	}
	for _, t := range spec.TLS {
		c.add(Secret, t.SecretName)
	}
	return readAnnotations(c, o)
}

// objectReference is a reference of the Gateway API, where group and kind have defaults.
type objectReference struct {
	Group     *string `json:"group"`
	Kind      *string `json:"kind"`
	Namespace *string `json:"namespace"`
	Name      string  `json:"name"`
}

// gatewayReferences adds references that are to a Secret unless they say otherwise, or to a ConfigMap.
func (c *collector) gatewayReferences(refs []objectReference) {
	for _, r := range refs {
		kind, namespace := Secret, c.namespace
		if r.Kind != nil && *r.Kind != "" {
			kind = Kind(*r.Kind)
		}
		if r.Namespace != nil && *r.Namespace != "" {
			namespace = *r.Namespace
		}
		if core := r.Group == nil || *r.Group == ""; core && (kind == Secret || kind == ConfigMap) {
			c.addIn(namespace, kind, r.Name)
		}
	}
}

type frontendValidation struct {
	CACertificateRefs []objectReference `json:"caCertificateRefs"`
}

type frontendTLS struct {
	Validation *frontendValidation `json:"validation"`
}

func readGateway(c *collector, o *unstructured.Unstructured) error {
	var spec struct {
		Listeners []struct {
			TLS *struct {
				CertificateRefs    []objectReference   `json:"certificateRefs"`
				FrontendValidation *frontendValidation `json:"frontendValidation"`
			} `json:"tls"`
		} `json:"listeners"`
		BackendTLS *struct {
			ClientCertificateRef *objectReference `json:"clientCertificateRef"`
		} `json:"backendTLS"`
		TLS *struct {
			Backend *struct {
				ClientCertificateRef *objectReference `json:"clientCertificateRef"`
			} `json:"backend"`
			Frontend *struct {
				Default *frontendTLS `json:"default"`
				PerPort []struct {
					TLS *frontendTLS `json:"tls"`
				} `json:"perPort"`
			} `json:"frontend"`
		} `json:"tls"`
	}
	if _, err := decode(o, &spec, "spec"); err != nil {
		return err
	}
	validated := func(v *frontendValidation) {
		if v != nil {
			c.gatewayReferences(v.CACertificateRefs)
		}
	}
	client := func(r *objectReference) {
		if r != nil {
			c.gatewayReferences([]objectReference{*r})
		}
	}
	for _, l := range spec.Listeners {
		if l.TLS != nil {
			c.gatewayReferences(l.TLS.CertificateRefs)
			validated(l.TLS.FrontendValidation)
		}
	}
	if spec.BackendTLS != nil {
		client(spec.BackendTLS.ClientCertificateRef)
	}
	if t := spec.TLS; t != nil && t.Backend != nil {
		client(t.Backend.ClientCertificateRef)
	}
	if t := spec.TLS; t != nil && t.Frontend != nil {
		if t.Frontend.Default != nil {
			validated(t.Frontend.Default.Validation)
		}
		for _, p := range t.Frontend.PerPort {
			if p.TLS != nil {
				validated(p.TLS.Validation)
			}
		}
	}
	return readAnnotations(c, o)
}

func readBackendTLSPolicy(c *collector, o *unstructured.Unstructured) error {
	var spec struct {
		Validation frontendValidation `json:"validation"`
	}
	if _, err := decode(o, &spec, "spec"); err != nil {
		return err
	}
	c.gatewayReferences(spec.Validation.CACertificateRefs)
	return nil
}

// readSubjects reads the ServiceAccounts that a binding grants something to.
func readSubjects(c *collector, o *unstructured.Unstructured) error {
	var binding struct {
		Subjects []rbacv1.Subject `json:"subjects"`
	}
	if _, err := decode(&unstructured.Unstructured{Object: map[string]any{"binding": o.Object}}, &binding, "binding"); err != nil {
		return err
	}
	for _, s := range binding.Subjects {
		if s.Kind != string(ServiceAccount) {
			continue
		}
		namespace := s.Namespace
		if namespace == "" {
			namespace = c.namespace
		}
		c.addIn(namespace, ServiceAccount, s.Name)
	}
	return nil
}

// readParameters reads the Secrets of a CSI driver in the parameters of a class: each NAME-secret-name has a
// NAME-secret-namespace. A name with a variable, such as ${pvc.name}, refers to Secrets of which the volumes that are provisioned
// say more; the class alone does not.
func readParameters(path ...string) reader {
	return func(c *collector, o *unstructured.Unstructured) error {
		parameters, _, err := unstructured.NestedStringMap(o.Object, path...)
		if err != nil {
			return err
		}
		for key, name := range parameters {
			prefix, is := strings.CutSuffix(key, "secret-name")
			if namespace := parameters[prefix+"secret-namespace"]; is && !strings.Contains(name+namespace, "${") {
				c.addIn(namespace, Secret, name)
			}
		}
		return nil
	}
}

// secretAnnotations name Secrets as "name", or "namespace/name": where the CA bundles of webhooks and API services come from
// (cert-manager), the credentials of snapshots, and those of Ingresses.
var secretAnnotations = []string{
	"cert-manager.io/inject-ca-from-secret",
	"cert-manager.io/secret-name",
	"nginx.ingress.kubernetes.io/auth-secret",
	"nginx.ingress.kubernetes.io/auth-tls-secret",
	"nginx.ingress.kubernetes.io/proxy-ssl-secret",
}

// secretPairs are annotations with the name of a Secret, and those with its namespace.
var secretPairs = map[string]string{
	"snapshot.storage.kubernetes.io/deletion-secret-name": "snapshot.storage.kubernetes.io/deletion-secret-namespace",
	"snapshot.storage.kubernetes.io/list-secret-name":     "snapshot.storage.kubernetes.io/list-secret-namespace",
}

// readAnnotations reads the Secrets that annotations name.
func readAnnotations(c *collector, o *unstructured.Unstructured) error {
	annotations := o.GetAnnotations()
	for _, key := range secretAnnotations {
		namespace, name, ok := strings.Cut(annotations[key], "/")
		if !ok {
			namespace, name = c.namespace, annotations[key]
		}
		c.addIn(namespace, Secret, name)
	}
	for name, namespace := range secretPairs {
		c.addIn(annotations[namespace], Secret, annotations[name])
	}
	return nil
}

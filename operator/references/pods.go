package references

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// readPod reads a Pod, also one that has ended: it still says what it ran with.
func readPod(c *collector, o *unstructured.Unstructured) error {
	var spec corev1.PodSpec
	if _, err := decode(o, &spec, "spec"); err != nil {
		return err
	}
	c.podSpec(&spec)
	for _, v := range spec.Volumes {
		if v.Ephemeral != nil {
			c.add(Claim, o.GetName()+"-"+v.Name)
		}
	}
	return nil
}

// template returns the reader of a Pod's spec in a template.
func template(path ...string) reader {
	return func(c *collector, o *unstructured.Unstructured) error {
		var spec corev1.PodSpec
		if found, err := decode(o, &spec, path...); err != nil || !found {
			return err
		}
		c.podSpec(&spec)
		return nil
	}
}

func readStatefulSet(c *collector, o *unstructured.Unstructured) error {
	var spec struct {
		Template             corev1.PodTemplateSpec         `json:"template"`
		VolumeClaimTemplates []corev1.PersistentVolumeClaim `json:"volumeClaimTemplates"`
	}
	if _, err := decode(o, &spec, "spec"); err != nil {
		return err
	}
	c.podSpec(&spec.Template.Spec)
	for _, t := range spec.VolumeClaimTemplates {
		c.found = append(c.found, Reference{Kind: Claim, Namespace: c.namespace, Name: t.Name + "-" + o.GetName(), AnyOrdinal: true})
		c.claimSpec(&t.Spec)
	}
	return nil
}

func readServiceAccount(c *collector, o *unstructured.Unstructured) error {
	var account corev1.ServiceAccount
	if _, err := decode(&unstructured.Unstructured{Object: map[string]any{"account": o.Object}}, &account, "account"); err != nil {
		return err
	}
	for _, s := range account.Secrets {
		c.add(Secret, s.Name)
	}
	for _, s := range account.ImagePullSecrets {
		c.add(Secret, s.Name)
	}
	return nil
}

func (c *collector) podSpec(s *corev1.PodSpec) {
	c.add(ServiceAccount, s.ServiceAccountName)
	c.add(ServiceAccount, s.DeprecatedServiceAccount)
	if s.ServiceAccountName == "" && s.DeprecatedServiceAccount == "" {
		c.add(ServiceAccount, "default")
	}
	for _, p := range s.ImagePullSecrets {
		c.add(Secret, p.Name)
	}
	for i := range s.InitContainers {
		c.environment(s.InitContainers[i].Env, s.InitContainers[i].EnvFrom)
	}
	for i := range s.Containers {
		c.environment(s.Containers[i].Env, s.Containers[i].EnvFrom)
	}
	for i := range s.EphemeralContainers {
		c.environment(s.EphemeralContainers[i].Env, s.EphemeralContainers[i].EnvFrom)
	}
	for i := range s.Volumes {
		c.podVolume(&s.Volumes[i].VolumeSource)
	}
}

func (c *collector) environment(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			c.add(ConfigMap, r.Name)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			c.add(Secret, r.Name)
		}
	}
	for _, f := range from {
		if f.ConfigMapRef != nil {
			c.add(ConfigMap, f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			c.add(Secret, f.SecretRef.Name)
		}
	}
}

func (c *collector) podVolume(v *corev1.VolumeSource) {
	switch {
	case v.ConfigMap != nil:
		c.add(ConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		c.add(Secret, v.Secret.SecretName)
	case v.PersistentVolumeClaim != nil:
		c.add(Claim, v.PersistentVolumeClaim.ClaimName)
	case v.Projected != nil:
		for _, p := range v.Projected.Sources {
			if p.ConfigMap != nil {
				c.add(ConfigMap, p.ConfigMap.Name)
			}
			if p.Secret != nil {
				c.add(Secret, p.Secret.Name)
			}
		}
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		c.claimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	case v.AzureFile != nil:
		c.add(Secret, v.AzureFile.SecretName)
	default:
		c.local(driverSecret(v))
	}
}

// driverSecret returns the Secret with the credentials of a volume.
func driverSecret(v *corev1.VolumeSource) *corev1.LocalObjectReference {
	switch {
	case v.CSI != nil:
		return v.CSI.NodePublishSecretRef
	case v.ISCSI != nil:
		return v.ISCSI.SecretRef
	case v.RBD != nil:
		return v.RBD.SecretRef
	case v.CephFS != nil:
		return v.CephFS.SecretRef
	case v.Cinder != nil:
		return v.Cinder.SecretRef
	case v.FlexVolume != nil:
		return v.FlexVolume.SecretRef
	case v.ScaleIO != nil:
		return v.ScaleIO.SecretRef
	case v.StorageOS != nil:
		return v.StorageOS.SecretRef
	default:
		return nil
	}
}

func (c *collector) local(secret *corev1.LocalObjectReference) {
	if secret != nil {
		c.add(Secret, secret.Name)
	}
}

// claimSpec adds the claim that another one is cloned from.
func (c *collector) claimSpec(s *corev1.PersistentVolumeClaimSpec) {
	if r := s.DataSource; r != nil && (r.APIGroup == nil || *r.APIGroup == "") && r.Kind == string(Claim) {
		c.add(Claim, r.Name)
	}
	if r := s.DataSourceRef; r != nil && (r.APIGroup == nil || *r.APIGroup == "") && r.Kind == string(Claim) {
		namespace := c.namespace
		if r.Namespace != nil && *r.Namespace != "" {
			namespace = *r.Namespace
		}
		c.addIn(namespace, Claim, r.Name)
	}
}

package references_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/operator/references"
)

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// of returns the references of an object, sorted, each once.
func of(t *testing.T, o *unstructured.Unstructured) []string {
	t.Helper()
	before := o.DeepCopy()
	refs, err := references.Of(o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Object, o.Object); diff != "" {
		t.Errorf("the object has changed:\n%s", diff)
	}
	var list []string
	for _, r := range refs {
		list = append(list, r.String())
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// referring are the types of fields that name an object, and what they name.
var referring = map[reflect.Type]references.Kind{
	reflect.TypeFor[corev1.LocalObjectReference]():              references.Secret,
	reflect.TypeFor[corev1.SecretReference]():                   references.Secret,
	reflect.TypeFor[corev1.SecretKeySelector]():                 references.Secret,
	reflect.TypeFor[corev1.SecretEnvSource]():                   references.Secret,
	reflect.TypeFor[corev1.SecretProjection]():                  references.Secret,
	reflect.TypeFor[corev1.SecretVolumeSource]():                references.Secret,
	reflect.TypeFor[corev1.AzureFileVolumeSource]():             references.Secret,
	reflect.TypeFor[corev1.AzureFilePersistentVolumeSource]():   references.Secret,
	reflect.TypeFor[corev1.ConfigMapKeySelector]():              references.ConfigMap,
	reflect.TypeFor[corev1.ConfigMapEnvSource]():                references.ConfigMap,
	reflect.TypeFor[corev1.ConfigMapProjection]():               references.ConfigMap,
	reflect.TypeFor[corev1.ConfigMapVolumeSource]():             references.ConfigMap,
	reflect.TypeFor[corev1.PersistentVolumeClaimVolumeSource](): references.Claim,
	reflect.TypeFor[corev1.TypedLocalObjectReference]():         references.Claim,
	reflect.TypeFor[corev1.TypedObjectReference]():              references.Claim,
}

// fields are fields that name an object by their own name.
var fields = map[string]references.Kind{
	"PodSpec.ServiceAccountName":                references.ServiceAccount,
	"PodSpec.DeprecatedServiceAccount":          references.ServiceAccount,
	"StorageOSPersistentVolumeSource.SecretRef": references.Secret,
	"IngressTLS.SecretName":                     references.Secret,
}

// others are fields whose name reads as if they named such an object.
var others = map[string]bool{
	"PodSpec.ResourceClaims": true, "ResourceRequirements.Claims": true, "PodResourceClaim.ResourceClaimName": true, "PodResourceClaim.ResourceClaimTemplateName": true,
	"CephFSVolumeSource.SecretFile": true, "CephFSPersistentVolumeSource.SecretFile": true, // on the node
	"PodSpec.AutomountServiceAccountToken": true, "VolumeProjection.ServiceAccountToken": true,
	"PersistentVolumeSpec.PersistentVolumeReclaimPolicy": true,
	"PersistentVolumeSpec.ClaimRef":                      true, // the claim that it is bound to does not depend on it
	"EphemeralVolumeSource.VolumeClaimTemplate":          true, // walked all the same
}

// leaf is a place in a type that names an object.
type leaf struct {
	path  []int // of fields
	label string
	kind  references.Kind
}

// leaves returns the places in a type that name an object.
func leaves(t *testing.T, in reflect.Type, at leaf) (all []leaf) {
	t.Helper()
	for in.Kind() == reflect.Pointer || in.Kind() == reflect.Slice {
		in = in.Elem()
	}
	if kind, is := referring[in]; is {
		at.kind = kind
		return []leaf{at}
	}
	if in.Kind() != reflect.Struct || !strings.HasPrefix(in.PkgPath(), "k8s.io/api/") {
		return nil
	}
	for i := range in.NumField() {
		f := in.Field(i)
		label := in.Name() + "." + f.Name
		next := leaf{append(slices.Clone(at.path), i), at.label + "." + f.Name, fields[label]}
		if next.kind != "" {
			all = append(all, next)
			continue
		}
		below := leaves(t, f.Type, next)
		all = append(all, below...)
		if suspicious := strings.Contains(f.Name, "Secret") || strings.Contains(f.Name, "ConfigMap") || strings.Contains(f.Name, "Claim") || strings.Contains(f.Name, "ServiceAccount"); suspicious && len(below) == 0 && !others[label] {
			t.Errorf("%s is not known: does it name an object?", label)
		}
	}
	return all
}

// name writes a name to a place, below a zero value.
func (l leaf) name(v reflect.Value, name string) {
	enter := func() {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice {
			if v.Kind() == reflect.Slice {
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
				v = v.Index(0)
			} else {
				v.Set(reflect.New(v.Type().Elem()))
				v = v.Elem()
			}
		}
	}
	for _, i := range l.path {
		enter()
		v = v.Field(i)
	}
	enter()
	if v.Kind() == reflect.String {
		v.SetString(name)
		return
	}
	for _, field := range []string{"Name", "SecretName", "ClaimName"} {
		if f := v.FieldByName(field); f.IsValid() {
			f.SetString(name)
		}
	}
	for field, value := range map[string]string{"Namespace": "shop", "SecretNamespace": "shop", "Kind": "PersistentVolumeClaim"} {
		switch f := v.FieldByName(field); {
		case !f.IsValid():
		case f.Kind() == reflect.Pointer:
			f.Set(reflect.ValueOf(&value))
		default:
			f.SetString(value)
		}
	}
}

// Whatever field of the API names an object, it is found. A new one in a later version fails this test.
func TestOf_FindsWhatAnyFieldRefersTo(t *testing.T) {
	for _, c := range []struct {
		apiVersion, kind, namespace string
		spec                        any
		least                       int
	}{
		{"v1", "Pod", "shop", corev1.PodSpec{}, 31},
		{"v1", "PersistentVolume", "", corev1.PersistentVolumeSpec{}, 13},
		{"v1", "PersistentVolumeClaim", "shop", corev1.PersistentVolumeClaimSpec{}, 2},
		{"networking.k8s.io/v1", "Ingress", "shop", networkingv1.IngressSpec{}, 1},
	} {
		all := leaves(t, reflect.TypeOf(c.spec), leaf{})
		all = slices.DeleteFunc(all, func(l leaf) bool { return c.kind == "Ingress" && strings.Contains(l.label, "Backend") }) // a custom resource
		for _, l := range all {
			spec := reflect.New(reflect.TypeOf(c.spec))
			l.name(spec.Elem(), "wanted")
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec.Interface())
			if err != nil {
				t.Fatal(err)
			}
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": c.apiVersion, "kind": c.kind, "spec": content}}
			o.SetNamespace(c.namespace)
			o.SetName("o")
			if want := string(l.kind) + " shop/wanted"; !slices.Contains(of(t, o), want) {
				t.Errorf("%s%s: %q is not among %q", c.kind, l.label, want, of(t, o))
			}
		}
		if len(all) < c.least {
			t.Errorf("%s has %d fields that name an object; want at least %d", c.kind, len(all), c.least)
		}
	}
}

func TestOf_FindsTheTemplatesOfWorkloads(t *testing.T) {
	for kind, path := range map[string]string{
		"v1 PodTemplate": "template", "v1 ReplicationController": "spec.template", "apps/v1 Deployment": "spec.template", "apps/v1 ReplicaSet": "spec.template",
		"apps/v1 DaemonSet": "spec.template", "apps/v1 StatefulSet": "spec.template", "apps/v1 ControllerRevision": "data.spec.template",
		"batch/v1 Job": "spec.template", "batch/v1 CronJob": "spec.jobTemplate.spec.template",
	} {
		apiVersion, kind, _ := strings.Cut(kind, " ")
		spec := map[string]any{"serviceAccountName": "account", "containers": []any{map[string]any{"envFrom": []any{map[string]any{"configMapRef": map[string]any{"name": "settings"}}}}}}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
		o.SetNamespace("shop")
		if err := unstructured.SetNestedField(o.Object, spec, append(strings.Split(path, "."), "spec")...); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"ConfigMap shop/settings", "ServiceAccount shop/account"}, of(t, o)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestOf_FindsWhatOtherKindsReferTo(t *testing.T) {
	for claim, c := range map[string]struct {
		manifest string
		want     []string
	}{
		"the claims of a StatefulSet, of any ordinal": {`
apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: shop, name: db}
spec:
  replicas: 1
  template: {spec: {serviceAccountName: db}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {dataSource: {kind: PersistentVolumeClaim, name: seed}}`, []string{"PersistentVolumeClaim shop/data-db-N", "PersistentVolumeClaim shop/seed", "ServiceAccount shop/db"}},
		"the claims of a Pod's ephemeral volumes": {`
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web}
spec: {serviceAccountName: web, volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {}}}}]}`, []string{"PersistentVolumeClaim shop/web-scratch", "ServiceAccount shop/web"}},
		"a Pod without an account has the default one": {`
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web}`, []string{"ServiceAccount shop/default"}},
		"an account's tokens and credentials": {`
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: shop, name: web}
secrets: [{name: token}]
imagePullSecrets: [{name: registry}]`, []string{"Secret shop/registry", "Secret shop/token"}},
		"a Gateway's certificates": {`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: shop, name: edge}
spec:
  listeners:
  - tls: {certificateRefs: [{name: own}, {kind: Secret, group: "", namespace: tls, name: shared}, {group: example.com, kind: Secret, name: custom}]}
  - tls: {frontendValidation: {caCertificateRefs: [{kind: ConfigMap, name: ca}]}}
  - {}
  backendTLS: {clientCertificateRef: {name: client}}
  tls:
    backend: {clientCertificateRef: {name: client2}}
    frontend: {default: {validation: {caCertificateRefs: [{kind: ConfigMap, name: ca2}]}}, perPort: [{tls: {validation: {caCertificateRefs: [{kind: ConfigMap, name: ca3}]}}}, {}]}`,
			[]string{"ConfigMap shop/ca", "ConfigMap shop/ca2", "ConfigMap shop/ca3", "Secret shop/client", "Secret shop/client2", "Secret shop/own", "Secret tls/shared"}},
		"the authority of a backend": {`
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {namespace: shop, name: b}
spec: {validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}`, []string{"ConfigMap shop/ca"}},
		"the accounts of a binding": {`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: shop, name: b}
subjects: [{kind: ServiceAccount, name: own}, {kind: ServiceAccount, namespace: other, name: theirs}, {kind: User, name: jane}]`,
			[]string{"ServiceAccount other/theirs", "ServiceAccount shop/own"}},
		"the accounts of a binding for the cluster": {`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: b}
subjects: [{kind: ServiceAccount, namespace: shop, name: own}]`, []string{"ServiceAccount shop/own"}},
		"the Secrets of a storage class": {`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
parameters:
  type: ssd
  csi.storage.k8s.io/provisioner-secret-name: p
  csi.storage.k8s.io/provisioner-secret-namespace: storage
  csi.storage.k8s.io/node-publish-secret-name: ${pvc.name}
  csi.storage.k8s.io/node-publish-secret-namespace: ${pvc.namespace}`, []string{"Secret storage/p"}},
		"the Secret of a webhook's CA bundle": {`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: w, annotations: {cert-manager.io/inject-ca-from-secret: shop/ca}}`, []string{"Secret shop/ca"}},
		"the Secret of an API service's CA bundle": {`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.metrics, annotations: {cert-manager.io/inject-ca-from-secret: shop/ca}}`, []string{"Secret shop/ca"}},
		"the Secrets of an Ingress": {`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: i, annotations: {nginx.ingress.kubernetes.io/auth-secret: users, nginx.ingress.kubernetes.io/auth-tls-secret: tls/ca}}
spec: {tls: [{secretName: cert}, {}]}`, []string{"Secret shop/cert", "Secret shop/users", "Secret tls/ca"}},
		"the claim of a snapshot": {`
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {namespace: shop, name: s}
spec: {source: {persistentVolumeClaimName: data}}`, []string{"PersistentVolumeClaim shop/data"}},
		"the Secret that deletes a snapshot": {`
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: s, annotations: {snapshot.storage.kubernetes.io/deletion-secret-name: s, snapshot.storage.kubernetes.io/deletion-secret-namespace: storage}}`, []string{"Secret storage/s"}},
		"nothing": {`
apiVersion: apps/v1
kind: ControllerRevision
metadata: {namespace: shop, name: c}`, nil},
	} {
		if diff := cmp.Diff(c.want, of(t, parse(t, c.manifest))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", claim, diff)
		}
	}
}

// What can't be read is no object without references.
func TestOf_FailsForWhatItCannotRead(t *testing.T) {
	for claim, manifest := range map[string]string{
		"of an unknown kind":             `{apiVersion: example.com/v1, kind: Widget, metadata: {namespace: shop, name: o}}`,
		"whose spec is text":             `{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: o}, spec: text}`,
		"whose volumes are a number":     `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: o}, spec: {template: {spec: {volumes: 7}}}}`,
		"whose template is text":         `{apiVersion: batch/v1, kind: Job, metadata: {namespace: shop, name: o}, spec: {template: text}}`,
		"whose subjects are text":        `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {namespace: shop, name: o}, subjects: text}`,
		"whose parameters are a list":    `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {namespace: shop, name: o}, parameters: []}`,
		"whose certificates are numbers": `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: shop, name: o}, spec: {listeners: [{tls: {certificateRefs: [7]}}]}}`,
	} {
		if refs, err := references.Of(parse(t, manifest)); err == nil || !strings.Contains(err.Error(), "shop/o") {
			t.Errorf("an object %s has %v, %v", claim, refs, err)
		}
	}
}

func TestKinds_CanAllBeRead(t *testing.T) {
	for _, k := range references.Kinds() {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.WithVersion("v1").GroupVersion().String(), "kind": k.Kind}}
		if _, err := references.Of(o); err != nil {
			t.Error(fmt.Errorf("an empty object: %w", err))
		}
	}
}

func TestAcrossNamespaces_OfAllKindsThatMay(t *testing.T) {
	for kind, want := range map[string]bool{
		"Pod": false, "Job.batch": false, "Ingress.networking.k8s.io": false, "ServiceAccount": false,
		"RoleBinding.rbac.authorization.k8s.io": true, "PersistentVolume": true, "PersistentVolumeClaim": true, "Gateway.gateway.networking.k8s.io": true, "Unknown": true,
	} {
		if got := references.AcrossNamespaces(schema.ParseGroupKind(kind)); got != want {
			t.Errorf("%s: %t", kind, got)
		}
	}
}

package server

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// Only the form of a reference is validated. Whether the owner exists, where
// it is, and what it is, the collector has to determine.
func TestA15_ValidOwnerReferences(t *testing.T) {
	a := newAPI(t)
	good := func() metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "uid"}
	}
	with := func(change func(*metav1.OwnerReference)) []metav1.OwnerReference {
		ref := good()
		change(&ref)
		return []metav1.OwnerReference{ref}
	}
	controller := func(uid string) metav1.OwnerReference {
		ref := good()
		ref.UID, ref.Controller = types.UID(uid), ptr.To(true)
		return ref
	}
	for name, c := range map[string]struct {
		refs    []metav1.OwnerReference
		invalid bool
	}{
		"no apiVersion":                {with(func(r *metav1.OwnerReference) { r.APIVersion = "" }), true},
		"no kind":                      {with(func(r *metav1.OwnerReference) { r.Kind = "" }), true},
		"no name":                      {with(func(r *metav1.OwnerReference) { r.Name = "" }), true},
		"no UID":                       {with(func(r *metav1.OwnerReference) { r.UID = "" }), true},
		"two controllers":              {[]metav1.OwnerReference{controller("a"), controller("b")}, true},
		"an Event":                     {with(func(r *metav1.OwnerReference) { r.Kind = "Event" }), true},
		"an owner that does not exist": {[]metav1.OwnerReference{good()}, false},
		"an owner of an unknown type":  {with(func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = "example.com/v1", "Nothing" }), false},
		"two references to one UID":    {append(with(func(r *metav1.OwnerReference) { r.Name = "other" }), good()), false},
	} {
		for _, k := range []kind{configMap, namespace} { // the second is cluster-scoped; the owner is not
			t.Run(name+", "+k.String(), func(t *testing.T) {
				b := a.forSubtest(t)
				o := object(k)
				o.SetOwnerReferences(c.refs)
				_, err := b.client(k).Create(b.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if apierrors.IsInvalid(err) != c.invalid || !c.invalid && err != nil {
					t.Errorf("got error %v", err)
				}
			})
		}
	}
}

var (
	rbac = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	role = kind{GroupVersionResource: rbac.WithResource("roles"), kind: "Role", rest: map[string]any{
		"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get"}}},
	}}
	roleBinding = kind{GroupVersionResource: rbac.WithResource("rolebindings"), kind: "RoleBinding"}
)

// A collector has none of the permissions that a role contains. It can still release roles, if
// it changes only references and finalizers: this is why roles and bindings have no state
// annotation of Gleaner's.
func TestA16_RoleMetadata_NeedsNoEscalation(t *testing.T) {
	a := newAPI(t)
	collector := a.asUser("collector", map[string]any{
		"apiGroups": []any{rbac.Group}, "resources": []any{"roles"}, "verbs": []any{"get", "patch", "update"},
	})
	owned := object(role, testFinalizer)
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}})
	owned = a.create(role, owned)
	for _, step := range []struct {
		name    string
		change  map[string]any
		refused bool
	}{
		{"a label", map[string]any{"labels": map[string]string{"a": "b"}}, true},
		{"an annotation with the references", map[string]any{"annotations": map[string]string{"a": "b"}, "ownerReferences": nil}, true},
		{"the references", map[string]any{"ownerReferences": nil}, false},
		{"the finalizers", map[string]any{"finalizers": nil}, false},
	} {
		if err := collector.patch(role, owned, step.change); apierrors.IsForbidden(err) != step.refused || !step.refused && err != nil {
			t.Errorf("%s: got error %v", step.name, err)
		}
	}
}

// asUser returns the api for a user with these permissions in the namespace.
func (a *api) asUser(user string, rules ...map[string]any) *api {
	a.Helper()
	config := rest.CopyConfig(a.config)
	config.Impersonate.UserName = user + "-of-" + a.ns
	rights := object(role)
	list := make([]any, len(rules))
	for i, rule := range rules {
		list[i] = rule
	}
	rights.Object["rules"] = list
	rights = a.create(role, rights)
	binding := object(roleBinding)
	binding.Object["roleRef"] = map[string]any{"apiGroup": rbac.Group, "kind": "Role", "name": rights.GetName()}
	binding.Object["subjects"] = []any{map[string]any{"kind": "User", "name": config.Impersonate.UserName, "apiGroup": rbac.Group}}
	a.create(roleBinding, binding)
	b := &api{T: a.T, config: config, objects: dynamic.NewForConfigOrDie(config), ns: a.ns}
	devtest.Eventually(a, timeout, func() error { // the authorizer has read the permissions
		_, err := b.client(role).Get(a.Context(), rights.GetName(), metav1.GetOptions{})
		return err
	})
	return b
}
